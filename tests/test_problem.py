from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from t2t_torch.data.publish import data_settings
from t2t_torch.errors import DataError
from t2t_torch.features import Features, Text
from t2t_torch.hparam import DataHParams
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import ByteEncoder, IntegerEncoder, WordCutter


class Spelling(Problem):
    """Numbers to words."""

    name = "spelling"
    input_space_id = 13
    target_space_id = 3
    setting_names = ("words",)
    words = ("zero", "one")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields them."""
        for number, word in enumerate(self.words):
            yield {"inputs": str(number), "targets": word}

    def stored_features(self, directory: Path) -> Features:
        """Returns them."""
        return Features({"inputs": Text(IntegerEncoder(2))}, {"targets": Text(ByteEncoder())})


def test_a_view_shares_the_data_and_changes_what_is_input_and_target() -> None:
    plain, turned = Spelling(), Spelling(reverse=True)
    assert (turned.full_name, turned.dataset_name) == ("spelling_rev", "spelling")
    sizes = {name: feature.vocab_size for name, feature in turned.features(Path()).all.items()}
    assert sizes == {"inputs": 258, "targets": 4}
    assert turned.features(Path()).columns == {"inputs": "targets", "targets": "inputs"}
    assert turned.stored_features(Path()).columns == {"inputs": "inputs", "targets": "targets"}
    assert (turned.input_space_id, turned.target_space_id) == (3, 13)
    assert (plain.input_space_id, plain.target_space_id) == (13, 3)


def test_a_copy_has_its_inputs_as_targets_after_reversal() -> None:
    problem = Spelling(reverse=True, copy=True)
    assert problem.full_name == "spelling_copy_rev"
    assert problem.features(Path()).columns == {"inputs": "targets", "targets": "targets"}
    assert (problem.input_space_id, problem.target_space_id) == (3, 3)


def test_settings_are_what_changes_the_bytes_and_fit_json() -> None:
    settings = data_settings(Spelling())
    assert settings == {"shards": {"train": 10, "dev": 1}, "words": ("zero", "one")}
    assert json.loads(json.dumps(settings))["words"] == ["zero", "one"]
    assert data_settings(Spelling(reverse=True)) == settings


@pytest.mark.parametrize(("max_length", "expected"), [(0, 4096), (256, 256)])
def test_the_longest_example_is_max_length_or_a_batch(max_length: int, expected: int) -> None:
    given = {"max_length": max_length, "split_to_length": 0, "batch_size": 4096}
    hparams = cast(DataHParams, SimpleNamespace(**given))
    assert Spelling().max_length(hparams) == expected


class Shouting(Spelling):
    """Texts of words."""

    name = "shouting"
    cutters: ClassVar[dict[str, WordCutter]] = dict.fromkeys(("inputs", "targets"), WordCutter())


def test_texts_are_cut_into_words_and_whoever_asks_needs_no_targets() -> None:
    problem = Shouting()
    (example,) = problem.examples_of({"inputs": "ONE!", "targets": "No.", "weight": 2})
    assert example == {"inputs": "one !", "targets": "no .", "weight": 2}
    assert problem.inputs_of({"inputs": "ONE!"}) == [{"inputs": "one !"}]


@pytest.mark.parametrize("targets", [["no", "."], None])
def test_what_is_no_text_is_not_cut(targets: Any) -> None:
    with pytest.raises(DataError, match="`cutters` of 'shouting' cuts texts, and 'targets'"):
        list(Shouting().examples_of({"inputs": "ONE!", "targets": targets}))


def test_cutters_are_settings_and_fit_json() -> None:
    cutter = {
        "words": WordCutter.words,
        "spaces": WordCutter.spaces,
        "before_words": "\\",
        "splits_glued": False,
        "lower_case": True,
    }
    told = json.loads(json.dumps(data_settings(Shouting())))["cutters"]
    assert told == {"inputs": cutter, "targets": cutter}
