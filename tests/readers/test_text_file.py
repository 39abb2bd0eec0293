from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords


def test_parallel_files_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"inputs": "train\.en"'):
        open_records(tmp_path, format="parallel")


def test_utterances_may_stand_in_files_of_other_names_without_a_label(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("a b\n")
    (tmp_path / "t.txt").write_text("O B-x\n")
    options = {"files": {"tags": "t.txt", "words": "w.txt"}}
    for path in (tmp_path, tmp_path / "w.txt"):
        (record,) = open_records(path, format="bio", options=options)
        assert record.values == {"words": ["a", "b"], "tags": ["O", "B-x"]}
    for files in ({"words": "w.txt"}, {"words": "w.txt", "tags": "t.txt", "intent": "w.txt"}):
        with pytest.raises(UsageError, match="words, tags, label"):
            open_records(tmp_path, format="bio", options={"files": files})


def test_packed_utterances_are_found_by_their_folder(tmp_path: Path) -> None:
    for name, text in (("seq.in", "a"), ("seq.out", "O"), ("label", "x")):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert [r.values["label"] for r in open_records(tmp_path)] == ["x"]


@pytest.mark.parametrize(
    ("text", "prefix", "found", "bad"),
    [
        ("DESC:manner How do bees fly ?\n", "", ("DESC:manner", "DESC", "How do bees fly ?"), 0),
        ("__label__a __label__b hi you\n", "__label__", ("a", "a", "hi you"), 0),
        ("DESC:manner\n", "", None, 1),
        ("hi you\n", "__label__", None, 1),
        ("__label__ hi\n", "__label__", None, 1),
        ("\n  \n", "", None, 0),
    ],
)
def test_lines_that_begin_with_labels_are_read(text, prefix, found, bad, tmp_path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text, "utf-8")
    skipped = BadRecords("skip")
    options = {"prefix": prefix} if prefix else {}
    records = list(open_records(path, format="labelled", bad=skipped, options=options))
    values = [(one.values["label"], one.values["coarse"], one.values["text"]) for one in records]
    assert values == ([found] if found else [])
    assert skipped.count == bad
