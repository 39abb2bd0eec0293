"""Texts in a file for each class."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords


def test_the_files_take_turns_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text("good\n\nfine\n")
    (tmp_path / "neg.txt").write_bytes(b"bad\nna\xefve\n  \n")
    options = {"files": {"yes": "pos.txt", "no": "neg.txt"}}
    bad = BadRecords("skip")
    made = list(open_records(tmp_path, format="class_files", bad=bad, options=options))
    assert [(one.values["text"], one.values["label"]) for one in made] == [
        ("good", "yes"), ("bad", "no"), ("fine", "yes")
    ]  # fmt: skip
    assert str(made[2].place) == f"{tmp_path / 'pos.txt'}, line 3"
    assert [told.partition(":")[0] for told in bad.listed] == [
        f"{tmp_path / 'neg.txt'}, line 2, column 3"
    ]
    options["encoding"] = "latin-1"
    read = list(open_records(tmp_path, format="class_files", options=options))
    assert read[2].values["text"] == "naïve"


def test_a_missing_file_and_missing_options_are_told(tmp_path: Path) -> None:
    options = {"files": {"yes": "pos.txt"}}
    with pytest.raises(DataError, match=r"pos\.txt"):
        list(open_records(tmp_path, format="class_files", options=options))
    with pytest.raises(UsageError, match="option files"):
        list(open_records(tmp_path, format="class_files"))
