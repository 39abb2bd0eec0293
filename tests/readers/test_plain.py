from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"))
_WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\t "), min_size=1),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(st.lists(_LINE))
def test_lines_are_read_back(read: Any, lines: list[str]) -> None:
    records, bad = read("\ufeff" + "".join(f"{line}\n" for line in lines), "lines")
    assert not bad.listed
    if lines:
        assert [record.values for record in records] == [{"text": line} for line in lines]


@settings(deadline=None)
@given(st.lists(st.tuples(_LINE, _LINE, _LINE), min_size=1))
def test_parallel_lines_are_read_back(folder: Path, rows: list[tuple[str, str, str]]) -> None:
    names = ("inputs", "targets", "third")
    for column, name in enumerate(names):
        text = "\ufeff" + "".join(f"{row[column]}\n" for row in rows)
        (folder / name).write_bytes(text.encode() if column else gzip.compress(text.encode()))
    options = {"files": {name: name for name in names}}
    records = list(open_records(folder, format="parallel", options=options))
    assert [tuple(record.values.values()) for record in records] == rows
    assert all(tuple(record.values) == names for record in records)


@settings(deadline=None)
@given(st.lists(st.tuples(_WORDS, _LINE.map(str.strip).filter(bool)), min_size=1))
def test_utterances_in_three_files_are_read_back(
    folder: Path, rows: list[tuple[list[str], str]]
) -> None:
    def put(name: str, lines: list[str]) -> None:
        (folder / name).write_text("\ufeff" + "".join(f"{line}\n" for line in lines), "utf-8")

    put("seq.in", [" ".join(words) for words, _ in rows])
    put("seq.out", ["\t".join(reversed(words)) for words, _ in rows])
    put("label", [label for _, label in rows])
    records = list(open_records(folder, format="bio"))
    assert [record.values for record in records] == [
        {"words": words, "tags": words[::-1], "label": label} for words, label in rows
    ]


def _parallel(folder: Path, first: bytes, second: bytes) -> tuple[list[Any], BadRecords]:
    (folder / "a").write_bytes(first)
    (folder / "b").write_bytes(second)
    bad = BadRecords("skip")
    options = {"files": {"inputs": "a", "targets": "b"}}
    records = open_records(folder, format="parallel", bad=bad, options=options)
    return [(r.place.line, r.values) for r in records], bad


def test_a_bad_line_takes_its_partner_with_it(tmp_path: Path) -> None:
    rows, bad = _parallel(tmp_path, b"1\n2\n3\n", b"x\n\xff\nz\n")
    assert rows == [(1, {"inputs": "1", "targets": "x"}), (3, {"inputs": "3", "targets": "z"})]
    assert bad.listed[0].startswith(f"{tmp_path / 'b'}, line 2, column 1: byte 0xff")


def test_files_of_different_length_are_refused_even_where_bad_rows_are_left_out(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=r"b ends after 1 lines, but .*a has more"):
        _parallel(tmp_path, b"1\n2\n", b"x\n")
    with pytest.raises(DataError, match=r"a ends after 2 lines, but .*b has more"):
        _parallel(tmp_path, b"1\n2\n", b"x\ny\n\xff\n")


def test_parallel_files_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"inputs": "train\.en"'):
        open_records(tmp_path, format="parallel")


def _bio(folder: Path, words: str, tags: str, label: str) -> tuple[list[Any], BadRecords]:
    for name, text in (("seq.in", words), ("seq.out", tags), ("label", label)):
        (folder / name).write_text(text)
    bad = BadRecords("skip")
    records = list(open_records(folder, bad=bad))
    return [(r.place.line, r.values["words"], r.values["label"]) for r in records], bad


def test_utterances_that_do_not_fit_together_are_left_out(tmp_path: Path) -> None:
    rows, bad = _bio(
        tmp_path, "a b\nc  d\ne\n\nf\ng\n", "O O\nO\nO O\n\nO\nO\n", "x\ny\nz\nx\n \ny\n"
    )
    assert rows == [(1, ["a", "b"], "x"), (6, ["g"], "y")]
    assert [line.removeprefix(f"{tmp_path}/") for line in bad.listed] == [
        "seq.in, line 2, column 4: 2 words, but 1 tags in seq.out",
        "seq.out, line 3, column 3: 1 words, but 2 tags in seq.out",
        "seq.in, line 4: no words",
        "label, line 5: no label",
    ]


@pytest.mark.parametrize("short", ["seq.in", "seq.out", "label"])
def test_utterances_in_files_of_unequal_length_are_refused(tmp_path: Path, short: str) -> None:
    contents = {"seq.in": "a\nb\n", "seq.out": "O\nO\n", "label": "x\ny\n"} | {short: "a\n"}
    with pytest.raises(DataError, match=f"{short} ends after 1 lines"):
        _bio(tmp_path, *contents.values())


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


def test_a_packed_file_that_unpacks_to_a_line_without_end_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 5000 + b"\n"))
    monkeypatch.setattr("t2t_torch.files._LONGEST_LINE", 4000)
    with pytest.raises(DataError, match="a line of more than 4,000 bytes, as decompression bombs"):
        list(open_records(path))


@pytest.mark.slow
def test_a_packed_file_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path, monkeypatch
) -> None:
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"\n" * 1_000_000))
    monkeypatch.setattr("t2t_torch.files._ALWAYS_ALLOWED", 1000)
    with pytest.raises(DataError, match="bytes, as decompression bombs do"):
        list(open_records(path))


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
