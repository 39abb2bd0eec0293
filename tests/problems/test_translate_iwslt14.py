from __future__ import annotations

from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.mode import Split

TALK = [("On Dogs", "Von Hunden"), *((f"Dog {i}.", f"Hund {i}.") for i in range(1, 47))]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    tiny_raw_files.write_iwslt14(tmp_path)
    return tmp_path


def pairs(raw: Path, split: Split) -> list[tuple[str, str]]:
    samples = registry.problem("translate_ende_iwslt14").generate_samples(raw, split)
    return [(sample["inputs"], sample["targets"]) for sample in samples]


def test_every_23rd_pair_is_for_evaluation_and_none_is_lost(raw: Path) -> None:
    assert pairs(raw, Split.EVAL) == [TALK[22], TALK[45]]
    assert pairs(raw, Split.TRAIN) == [*TALK[:22], *TALK[23:45], TALK[46]]


def test_the_five_sets_together_are_the_test(raw: Path) -> None:
    found = pairs(raw, Split.TEST)
    assert found[:2] == [
        ("TED.dev2010 in English", "TED.dev2010 auf Deutsch"),
        ("TEDX.dev2012 in English", "TEDX.dev2012 auf Deutsch"),
    ]
    assert len(found) == 5


def test_its_reverse_is_the_customary_direction(raw: Path) -> None:
    problem = registry.problem("translate_ende_iwslt14_rev")
    assert (problem.input_space_id, problem.target_space_id) == (8, 3)
    assert problem.dataset_name == "translate_ende_iwslt14"
