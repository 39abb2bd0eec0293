from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers import delimited
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import MAX_LISTED, BadRecords, Place

PATH = Path("train.csv")


def test_a_place_reads_as_file_line_and_column() -> None:
    assert str(Place(PATH, 3, 7)) == "train.csv, line 3, column 7"
    assert str(Place(PATH, 3)) == "train.csv, line 3"
    assert str(Place(PATH, 3, unit="row")) == "train.csv, row 3"


def test_the_first_bad_record_ends_the_reading_unless_told_otherwise() -> None:
    with pytest.raises(
        DataError,
        match=r"^train\.csv, line 2, column 5: it is odd\. Fix it, or .*--on_bad_record=skip$",
    ):
        BadRecords().report(Place(PATH, 2, 5), "it is odd")


def test_all_that_is_left_out_is_counted_and_the_first_of_it_listed() -> None:
    bad = BadRecords("skip")
    for line in range(1, MAX_LISTED + 11):
        bad.report(Place(PATH, line), "odd")
    assert bad.count == MAX_LISTED + 10
    assert bad.listed == [f"train.csv, line {n}: odd" for n in range(1, MAX_LISTED + 1)]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'ignore'.*fail, skip"):
        BadRecords("ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "column", "why"),
    [
        ("1", 2, "1 field, where 2 were expected"),
        ("ä,2,3,4", 5, "4 fields, where 2 were expected"),
        ('"1",2,3', 7, "3 or more fields, where 2 were expected"),
        ('"1"x,2', 4, "text after the closing quote"),
        ('1,"2" ', 6, "text after the closing quote"),
    ],
)
def test_a_bad_row_is_reported_where_it_goes_wrong(
    read: Any, row: str, column: int, why: str
) -> None:
    records, bad = read(f"a,b\n1,2\n{row}\n3,4\n", "csv")
    assert [list(r.values.values()) for r in records] == [["1", "2"], ["3", "4"]]
    assert bad.count == 1
    assert f"file.csv, line 3, column {column}: {why}" in bad.listed[0]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("", "the file ends"),
        ('z,"quoted"\n', "text after the closing quote"),
        ('"quoted",z\n', "text after the closing quote"),
        ('q","z\n', "3 or more fields"),
        ('x,","y"\n', "3 or more fields"),
    ],
)
def test_an_unbalanced_quote_spoils_one_row(read: Any, after: str, why: str) -> None:
    records, bad = read(f'a,b\n1,2\n3,"oops\n5,6\n{after}', "csv")
    assert [list(r.values.values()) for r in records][:2] == [["1", "2"], ["5", "6"]]
    assert "line 3, column 3: the quote that opens here has no fitting end" in bad.listed[0]
    assert why in bad.listed[0]


def test_a_quote_is_a_mistake_when_it_is_open_for_too_long(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_LINES", 5)
    records, bad = read('a,b\n"1,2\n' + "3,4\n" * 9 + '5,"6"\n', "csv")
    assert len(records) == 10
    assert "line 2, column 1: " in bad.listed[0]
    assert "5 lines without one" in bad.listed[0]


def test_many_unbalanced_quotes_take_no_more_time_than_lines(read: Any) -> None:
    records, bad = read("a,b\n" + 'x","y\n' * 20_000, "csv")
    assert (len(records), bad.count) == (0, 20_000)


def test_a_row_with_a_line_that_is_no_text_is_left_out(read: Any) -> None:
    records, bad = read(b'a,b\n1,"x\ny\xe9\nz"\n3,4\n', "csv")
    assert records[-1].values == {"a": "3", "b": "4"}
    assert "line 3, column 2: byte 0xe9 is not UTF-8" in bad.listed[0]
    assert "line 2, column 3: the quote" in bad.listed[1]


def test_the_first_bad_row_ends_the_reading_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n2,3\n4\n")
    records = open_records(path, bad=BadRecords("fail"))
    assert next(records).values == {"a": "1"}
    with pytest.raises(DataError, match=r"x\.csv, line 3, column 3: 2 fields"):
        next(records)


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


@pytest.mark.parametrize(
    ("row", "column", "count"), [("bä", 3, 1), ("b Y Z", 5, 3), ("b  Y Z", 5, 3)]
)
def test_a_word_with_too_few_or_many_columns_spoils_its_sentence(
    read: Any, row: str, column: int, count: int
) -> None:
    records, bad = read(f"a X\n\na X\n{row}\nc X\n\nd X\n", "conll", columns=["word", "tag"])
    assert [(r.place.line, r.values["word"]) for r in records] == [(1, ["a"]), (7, ["d"])]
    expected = f"line 4, column {column}: {count} columns, where 2 were expected (word, tag)"
    assert bad.count == 1
    assert bad.listed[0].endswith(expected)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["1\ta" + "\t_" * 7], "line 3, column 18: 9 columns with tabs between, where 10"),
        (["1\ta" + "\t_" * 9], "line 3, column 21: 11 columns"),
        (["1\t\t_" + "\t_" * 7], "line 3, column 3: nothing in the column form"),
        (["1\ta" + "\t_" * 8, "3\tb" + "\t_" * 8], "line 4, column 1: word '3', where word 2"),
        (["1\ta" + "\t_" * 8, "1\tb" + "\t_" * 8], "line 4, column 1: word '1', where word 2"),
        (["x\ta" + "\t_" * 8], "line 3, column 1: word 'x', where word 1"),
    ],
)
def test_a_bad_line_spoils_its_sentence_of_universal_dependencies(
    read: Any, rows: list[str], told: str
) -> None:
    good = "1\tgood" + "\t_" * 8 + "\n\n"
    records, bad = read(good + "\n".join(rows) + "\n\n" + good, "conllu")
    assert [r.values["form"] for r in records] == [["good"], ["good"]]
    assert bad.count == 1
    assert told in bad.listed[0]


GOOD_TREE = "(S\n  (NN good))\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(S\n  (NN a)\n", "line 3, column 1: the bracket that opens here is not closed before an"),
        ("(S\n  (NN a)))\n  (NN b))\n", "line 4, column 10: a tree begins with ( or ["),
        ("(S (NN a)))\n", "line 3, column 11: a tree begins"),
        ("hello\n  (NN a)\n", "line 3, column 1: a tree begins"),
        ("(S\n  ((a) (b)))\n", "line 4, column 3: a bracket without a label"),
        ("(S\n  (NN))\n", "line 3, column 1: a tree without words"),
        ("(S\n (N[N a))\n", "line 4, column 2: 'N[N' is no label"),
        ("[S\n  [IN:X] a ]\n", "line 3, column 1: the bracket that opens here is not closed"),
        ("[S\n  [IN:X( a ] ]\n", "line 4, column 3: 'IN:X(' is no label"),
        ("[ S a ]\n", "line 3, column 1: a lone [ opens nothing"),
    ],
)
def test_a_bad_tree_is_reported_where_it_goes_wrong_and_spoils_no_other(
    read: Any, text: str, told: str
) -> None:
    good = "[S\n  [NN good ] ]\n" if text.startswith("[") else GOOD_TREE
    records, bad = read(f"{good}{text}{good}", "trees")
    assert [r.values["words"] for r in records if r.values["words"] != ["a"]] == [["good"]] * 2
    assert bad.count == 1
    assert told in bad.listed[0]


def test_a_tree_that_the_file_leaves_open_is_reported(read: Any) -> None:
    records, bad = read(f"{GOOD_TREE}  (S (NN a)\n     (NN b)\n", "trees")
    assert len(records) == 1
    assert bad.listed[0].endswith(
        "line 3, column 3: the bracket that opens here is not closed before the file ends"
    )


def test_a_tree_that_is_open_for_too_long_is_reported(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.readers.trees.MAX_LINES", 5)
    records, bad = read("(S\n" + "  (NN a)\n" * 20 + GOOD_TREE, "trees")
    assert [r.values["words"] for r in records] == [["good"]]
    assert bad.count == 1
    assert "open after 5 lines" in bad.listed[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"a" 1}', "column 6: no JSON: "),
        ('{"ä": no}', "column 7: no JSON: "),
        ('{"a": 1', "column 8: no JSON: "),
        ('{"a": 1} {"a": 2}', "column 10: no JSON: Extra data"),
        ('{"a": "\t"}', "column 8: no JSON: Invalid control character"),
        ("[1]", "column 1: a list, where an object was expected"),
        ('"a"', "column 1: a string, where"),
        ("null", "column 1: null, where"),
        ("17", "column 1: a number, where"),
        ('{"a": NaN}', ": no JSON: NaN is no number"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', ": no JSON: the key 'c' is there twice"),
        ('{"a": "\\ud800"}', ": a lone surrogate"),
        ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", ": nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", ": no JSON: "),
    ],
)
def test_a_line_that_is_no_object_is_reported_where_it_goes_wrong(
    read: Any, line: str, told: str
) -> None:
    records, bad = read(f'{{"a": 0}}\n{line}\n{{"a": 9}}\n', "jsonl")
    assert [record.values for record in records] == [{"a": 0}, {"a": 9}]
    assert bad.count == 1
    assert "file.jsonl, line 2" in bad.listed[0]
    assert told in bad.listed[0]
