from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.data.publish import data_settings
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, VocabType


class Greetings(Text2TextProblem):
    """English to German."""

    name = "greetings"
    approx_vocab_size = 320

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields them."""
        for _ in range(20):
            yield {"inputs": "good morning", "targets": "guten Morgen"}


class GreetingsTokens(Greetings):
    """The same in whole words."""

    name = "greetings_tokens"
    vocab_type = VocabType.TOKEN
    approx_vocab_size = 6
    oov_token = "<UNK>"


class GreetingsBytes(Greetings):
    """The same in bytes."""

    name = "greetings_bytes"
    vocab_type = VocabType.CHARACTER


class Monologue(Text2SelfProblem):
    """One side."""

    name = "monologue"
    vocab_type = VocabType.CHARACTER

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields one."""
        yield {"targets": "to be or not to be"}


def test_both_sides_share_a_vocabulary_learnt_from_both(tmp_path: Path) -> None:
    problem = Greetings()
    problem.build_vocab(tmp_path, tmp_path)
    features = problem.features(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.greetings.320.subwords"]
    assert problem.vocab_files == ("vocab.greetings.320.subwords",)
    assert features.inputs["inputs"] == features.targets["targets"]
    for text in ("good morning", "guten Morgen"):
        ids = features.inputs["inputs"].encode(text)
        assert len(ids) == 3  # two words and EOS
        assert features.inputs["inputs"].decode(ids) == text


def test_a_vocabulary_that_is_there_is_kept(tmp_path: Path) -> None:
    problem = Greetings()
    path = tmp_path / problem.vocab_files[0]
    SubwordEncoder.train(["a b c"], 270, path)
    before = path.read_bytes()
    problem.build_vocab(tmp_path, tmp_path)
    assert path.read_bytes() == before


def test_a_missing_vocabulary_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    command = f"t2t-datagen --problem=greetings --data_dir={tmp_path}"
    with pytest.raises(DataError, match=command):
        Greetings().features(tmp_path)


def test_a_token_vocabulary_is_the_users_file(tmp_path: Path) -> None:
    problem = GreetingsTokens()
    with pytest.raises(DataError, match=r"vocab\.greetings_tokens\.6\.tokens, which is not there"):
        problem.build_vocab(tmp_path, tmp_path)
    path = tmp_path / problem.vocab_files[0]
    path.write_text("<pad>\n<EOS>\n<UNK>\ngood\nmorning\n", encoding="utf-8")
    problem.build_vocab(tmp_path, tmp_path)
    assert problem.features(tmp_path).inputs["inputs"].encode("good grief") == [3, 2, 1]


def test_bytes_need_no_vocabulary_file(tmp_path: Path) -> None:
    problem = GreetingsBytes()
    problem.build_vocab(tmp_path / "absent", tmp_path)
    assert problem.vocab_files == ()
    assert problem.features(tmp_path / "absent").inputs["inputs"].vocab_size == 258


def test_a_language_model_has_targets_only(tmp_path: Path) -> None:
    features = Monologue().features(tmp_path)
    assert (list(features.inputs), list(features.targets)) == ([], ["targets"])


def test_a_vocabulary_can_be_borrowed_and_is_made_if_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Borrower(Greetings):
        """Uses the vocabulary of Greetings."""

        name = "borrower"
        use_vocab_from_other_problem = "greetings"

    monkeypatch.setattr(registry, "problem", {"greetings": Greetings()}.__getitem__)
    problem = Borrower()
    problem.build_vocab(tmp_path, tmp_path)
    assert problem.vocab_files == Greetings().vocab_files
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.greetings.320.subwords"]
    assert problem.features(tmp_path).inputs["inputs"].vocab_size > 259


def test_settings_name_the_vocabulary_and_fit_json() -> None:
    settings = json.loads(json.dumps(data_settings(Greetings())))
    assert settings["vocab_filename"] == "vocab.greetings.320.subwords"
    assert json.loads(json.dumps(data_settings(GreetingsBytes())))["vocab_filename"] is None


def test_the_vocabulary_is_learnt_from_no_more_samples_than_allowed(tmp_path: Path) -> None:
    class Many(Greetings):
        """More samples than the vocabulary may see."""

        name = "many"
        max_samples_for_vocab = 1

        def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
            """Yields two alphabets, one in a sample."""
            yield {"inputs": "abc", "targets": "abc"}
            yield {"inputs": "xyz", "targets": "xyz"}

    Many().build_vocab(tmp_path, tmp_path)
    encoder = SubwordEncoder.load(tmp_path / Many().vocab_files[0])
    learnt = [len(encoder.encode(text)) == 1 for text in ("abc", "xyz")]
    assert sorted(learnt) == [False, True]


def test_a_vocabulary_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {}
    for name, other in (("a", "b"), ("b", "c"), ("c", "b"), ("own", "own")):
        body = {"name": name, "use_vocab_from_other_problem": other}
        made[name] = type(name, (Greetings,), body)()
    monkeypatch.setattr(registry, "problem", made.__getitem__)
    with pytest.raises(DataError, match="vocabulary of 'a': a -> b -> c -> b"):
        _ = made["a"].vocab_filename
    with pytest.raises(DataError, match="own -> own"):
        _ = made["own"].vocab_filename


def test_a_vocabulary_may_be_borrowed_of_one_who_has_borrowed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"greetings": Greetings()}
    for name, other in (("second", "greetings"), ("third", "second")):
        body = {"name": name, "use_vocab_from_other_problem": other}
        made[name] = type(name, (Greetings,), body)()
    monkeypatch.setattr(registry, "problem", made.__getitem__)
    made["third"].build_vocab(tmp_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.greetings.320.subwords"]
