"""What is told where raw files are not what they should be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.data.raw_file import RawFile, samples_of
from t2t_torch.errors import DataError
from t2t_torch.files import read_lines
from t2t_torch.mode import Split
from t2t_torch.text_problem import Text2SelfProblem


class Lines(Text2SelfProblem):
    """The lines of a file, whose checksum is known."""

    name = "lines"
    sources = (RawFile("lines.txt", sha256="00ff"), RawFile("other.txt"))

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        for line in read_lines(tmp_dir / "lines.txt"):
            if not line:
                raise KeyError(line)
            yield {"targets": line}


class Unknown(Lines):
    """The same, with nothing known of the file."""

    sources = (RawFile("lines.txt"), RawFile("other.txt"))


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"one\n\n"])
def test_what_fails_or_is_empty_names_the_file_that_is_not_the_expected_one(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(content)
    (tmp_path / "other.txt").touch()
    with pytest.raises(DataError) as error:
        list(samples_of(Lines(), tmp_path, Split.TRAIN))
    last = str(error.value).splitlines()[-1]
    assert last.startswith(f"{path} is not the file that is expected (sha256 00ff)")


def test_raw_files_without_a_sample_to_train_on_are_named(tmp_path: Path) -> None:
    for name in ("lines.txt", "other.txt"):
        (tmp_path / name).touch()
    told = rf"'lines' train: there is no sample in {tmp_path}/lines\.txt, {tmp_path}/other\.txt"
    with pytest.raises(DataError, match=told):
        list(samples_of(Unknown(), tmp_path, Split.TRAIN))
    assert list(samples_of(Unknown(), tmp_path, Split.EVAL)) == []


def test_good_samples_are_passed_on_whatever_the_checksum(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    assert len(list(samples_of(Lines(), tmp_path, Split.TRAIN))) == 2
