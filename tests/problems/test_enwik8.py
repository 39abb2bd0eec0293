from __future__ import annotations

from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

NAMES = ["enwik8_l512", "enwik8_l2k", "enwik8_l32k", "enwik8_l65k"]


def text(folder: Path, name: str, split: Split) -> bytes:
    samples = registry.problem(name).generate_samples(folder, split)
    return b"".join(sample["targets"].encode() for sample in samples)


@pytest.mark.parametrize("name", NAMES)
def test_no_byte_is_lost_between_splits_and_texts(name: str, tmp_path: Path) -> None:
    tiny_raw_files.write_enwik8(tmp_path)
    parts = [text(tmp_path, name, split) for split in (Split.TRAIN, Split.EVAL, Split.TEST)]
    assert b"".join(parts) == tiny_raw_files.ENWIK8
    size = len(tiny_raw_files.ENWIK8)
    # The borders, which would cut a character, are behind it.
    assert 0 < len(parts[0]) - size * 90 // 100 <= 3
    assert 0 < len(parts[0] + parts[1]) - size * 95 // 100 <= 3


def test_a_text_is_a_whole_number_of_pieces_with_its_end(tmp_path: Path) -> None:
    (tmp_path / "enwik8").write_bytes(b"x" * 20_000)
    problem = registry.problem("enwik8_l512")
    samples = list(problem.generate_samples(tmp_path, Split.TRAIN))
    sizes = [len(sample["targets"]) + 1 for sample in samples]
    assert sum(sizes) == 18_000 + len(samples)
    assert all(0 <= -size % 512 < 4 for size in sizes[:-1])


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "enwik8").write_bytes(b"page \xff\xfe page" * 50)
    with pytest.raises(DataError, match=r"enwik8, byte 6 is not UTF-8"):
        text(tmp_path, "enwik8_l512", Split.TRAIN)
