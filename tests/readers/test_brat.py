"""BRAT's standoff annotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head
from t2t_torch.readers.text_file import BadRecords

TEXT = "Ana Lima flew.\r\n\nTo New\nHaven by air.\n"
ANN = (
    "T2\tLOC 20 29\tNew\nHaven\nT1\tPER 0 8\tAna Lima\nT3\tMEANS 24 29;33 36\tHaven air\n"
    "R1\tflies Arg1:T1 Arg2:T2\n#1\tAnnotatorNotes T1\tsure\n*\tEquiv T1 T2\n"
)


def write(folder: Path, text: str = TEXT, ann: str = ANN) -> Path:
    (folder / "a.txt").write_bytes(text.encode())
    (folder / "a.ann").write_bytes(ann.encode())
    return folder


def test_lines_have_the_tags_of_the_spans_in_them(tmp_path: Path) -> None:
    bad = BadRecords("skip")
    records = list(open_records(write(tmp_path), format="brat", bad=bad))
    assert [one.place.line for one in records] == [1, 3, 4]
    assert [one.values["tags"] for one in records] == [
        ["B-PER", "I-PER", "O", "O"], ["O", "B-LOC"], ["B-MEANS", "I-MEANS", "I-MEANS", "O"],
    ]  # fmt: skip
    assert bad.listed == [
        f"{tmp_path / 'a.ann'}, line 2: no annotation, such as T1, a tab and PER 0 5"
    ]


def test_spans_outside_and_annotations_that_cannot_be_read_are_bad(tmp_path: Path) -> None:
    bad = BadRecords("skip")
    ann = "T1\tPER 0 5\nT2\tPER 4 4\nT3\tPER 90 95\nT4 PER 1 2\nEnd\n"
    records = list(open_records(write(tmp_path, "Ana x\nBo\n", ann), format="brat", bad=bad))
    assert [one.values["text"] for one in records] == ["Bo"]
    assert bad.count == 4


def test_a_line_that_cannot_be_read_ends_a_text_and_is_reported(tmp_path: Path) -> None:
    bad = BadRecords("skip")
    write(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"Ana Lima flew.\n\xff\nTo New Haven.\n")
    records = list(open_records(tmp_path, format="brat", bad=bad))
    assert [one.values["text"] for one in records] == ["Ana Lima flew."]
    assert bad.listed[-1].startswith(f"{tmp_path / 'a.txt'}, line 2: the rest of the text")


def test_a_folder_without_pairs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ana")
    with pytest.raises(DataError, match="no texts with annotations"):
        list(open_records(tmp_path, format="brat"))


def test_it_matches_pairs_of_files(tmp_path: Path) -> None:
    matches = FORMATS["brat"].matches
    assert matches is not None
    (tmp_path / "b.txt").write_text("no annotations")
    assert matches(Head(tmp_path)) is None
    write(tmp_path)
    found = {one.name: matches(Head(one)) for one in (tmp_path, *tmp_path.iterdir())}
    assert [name for name, match in found.items() if match is None] == ["b.txt"]
