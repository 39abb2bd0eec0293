from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

NAME = "languagemodel_tiny_shakespeare_characters"
TEXT = "SHALLOW:\nNobody wrote this.\n\n" * 10_000


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "tinyshakespeare").mkdir()
    (tmp_dir / "tinyshakespeare" / "input.txt").write_text(TEXT, "utf-8")


def test_no_character_is_lost_between_blocks_or_parts(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    train, held_out = (
        "".join(sample["targets"] for sample in samples(NAME, tmp_path, split))
        for split in (Split.TRAIN, Split.EVAL)
    )
    assert train + held_out == TEXT
    assert len(train) == len(TEXT) * 9 // 10
    assert rows(NAME, tmp_path) == {"train": 4, "dev": 1}


def test_blocks_with_their_end_are_a_whole_number_of_pieces(tmp_path, samples):
    write_raw_files(tmp_path)
    *blocks, _ = samples(NAME, tmp_path, Split.TRAIN)
    assert {
        (len(block["targets"]) + 1) % registry.problem(NAME).chop_length for block in blocks
    } == {0}


def test_a_line_that_is_no_text_is_bad(tmp_path):
    (tmp_path / "input.txt").write_bytes(b"one\n\xff\nthree\n")
    with pytest.raises(DataError, match=r"input\.txt, line 2, column 1"):
        list(registry.problem(NAME).generate_samples(tmp_path, Split.TRAIN))


@pytest.mark.slow
def test_the_real_text_is_all_there(real, samples, rows, tmp_path):
    tmp_dir = real("tinyshakespeare")
    texts = [
        "".join(sample["targets"] for sample in samples(NAME, tmp_dir, split))
        for split in (Split.TRAIN, Split.EVAL)
    ]
    assert [len(text) for text in texts] == [1_003_854, 111_540]
    assert texts[0].startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n\n")
    assert rows(NAME, tmp_dir) == {"train": 16, "dev": 2}
    features = registry.problem(NAME).features(tmp_path / "data")
    assert features.targets["targets"].vocab_size == 65 + 3  # padding, end, unknown
