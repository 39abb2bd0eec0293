from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers import delimited
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

_NO_TEXT = st.characters(codec="utf-8", exclude_characters="\0")
_AWKWARD = st.text(st.sampled_from('",;\t\n\r \u2028\u0085\ufeffaß')) | st.text(_NO_TEXT)


def _rows(min_width: int = 1) -> st.SearchStrategy[list[list[str]]]:
    widths = st.integers(min_width, 4)
    return widths.flatmap(
        lambda n: st.lists(st.lists(_AWKWARD, min_size=n, max_size=n), min_size=1, max_size=8)
    )


@settings(deadline=None)
@given(_rows(), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_pythons_csv_writes_is_read_back(
    read: Any, rows: list[list[str]], delimiter: str, end: str, everything: bool
) -> None:
    file = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if everything else csv.QUOTE_MINIMAL
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    if end == "\n" and not everything:  # that writer leaves a "\r" at the end of a line bare
        rows = [[field.replace("\r", " ") for field in row] for row in rows]
    names = [f"c{i}" for i in range(len(rows[0]))]
    writer.writerows([names, *rows])
    text = file.getvalue()
    records, bad = read(text, "csv", delimiter=delimiter)
    assert not bad.listed
    assert [list(record.values.values()) for record in records] == rows
    assert all(list(record.values) == names for record in records)


@settings(deadline=None)
@given(_rows(2), st.booleans())
def test_rows_of_tabs_are_read_back(read: Any, rows: list[list[str]], header: bool) -> None:
    cut = str.maketrans("\t\n\r", "   ")
    rows = [[field.translate(cut) for field in row] for row in rows]
    names = (
        [f"c{i}" for i in range(len(rows[0]))] if header else list(map(str, range(len(rows[0]))))
    )
    lines = ["\t".join(row) + "\n" for row in ([names, *rows] if header else rows)]
    if not header and lines[0].startswith("\ufeff"):
        lines[0] = "\ufeff" + lines[0]  # the first is no part of the text
    records, bad = read("".join(lines), "tsv", header=header)
    assert not bad.listed
    assert [record.values for record in records] == [
        dict(zip(names, row, strict=True)) for row in rows
    ]


def test_places_are_where_rows_start(read: Any) -> None:
    records, _ = read('a,b\n1,"x\ny\r\nz"\n\n\n2,y\n', "csv")
    assert [(r.place.line, r.values["b"]) for r in records] == [(2, "x\ny\r\nz"), (7, "y")]


def test_a_tab_inside_a_quoted_field_is_a_character_only_with_quoting(read: Any) -> None:
    text = 'a\tb\n"x\ty"\tz\n'
    assert [r.values for r in read(text, "tsv", quoting=True)[0]] == [{"a": "x\ty", "b": "z"}]
    records, bad = read(text, "tsv")
    assert not records
    assert bad.listed[0].endswith("line 2, column 7: 3 fields, where 2 were expected (a, b)")


def test_quotes_inside_bare_fields_are_characters(read: Any) -> None:
    records, bad = read('a,b\n5" disk,x ""y"" \n', "csv")
    assert not bad.count
    assert records[0].values == {"a": '5" disk', "b": 'x ""y"" '}


def test_quotes_mean_nothing_without_quoting(read: Any) -> None:
    assert [r.values for r in read('a,b\n"x,"y\n', "csv", quoting=False)[0]] == [
        {"a": '"x', "b": '"y'}
    ]


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


def test_columns_are_numbered_without_a_header(read: Any) -> None:
    records, bad = read("x,y\n1,2\n3\n", "csv", header=False)
    assert [r.values for r in records] == [{"0": "x", "1": "y"}, {"0": "1", "1": "2"}]
    assert bad.listed[0].endswith("1 field, where 2 were expected (0, 1)")


def test_with_given_columns_the_first_row_is_data(read: Any) -> None:
    assert read("x,y\n", "csv", columns=["a", "b"])[0][0].values == {"a": "x", "b": "y"}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("", "file.csv is empty"),
        ("\n\r\n", "file.csv is empty"),
        ("a,b,a\n", "name 'a' more than once"),
        (",,\n", "no name for column 1, 2, 3"),
        ("a,b\r1,2\r", "the header holds carriage returns"),
        ('"a\n', "The header is bad: .*line 1, column 1: .*never closed"),
        ('"a"b\n', "The header is bad: .*line 1, column 4"),
        (b"a\xe9,b\n", "The header is bad: .*line 1, column 2"),
        ("\ufeffa\n".encode("utf-16"), "The header is bad: .*iconv -f UTF-16"),
    ],
)
def test_a_header_that_names_no_columns_is_refused_even_where_bad_rows_are_left_out(
    read: Any, header: bytes | str, why: str
) -> None:
    with pytest.raises(DataError, match=why):
        read(header, "csv")


def test_an_empty_file_with_given_columns_has_no_records(read: Any) -> None:
    assert read("", "csv", columns=["a"])[0] == []
    assert read("", "tsv", header=False)[0] == []


@pytest.mark.parametrize("delimiter", ["", "\n", '"', ",,"])
def test_what_cannot_delimit_is_refused_at_once(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(UsageError, match="cannot delimit fields"):
        open_records(tmp_path / "absent.csv", options={"delimiter": delimiter})


def test_the_first_bad_row_ends_the_reading_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n2,3\n4\n")
    records = open_records(path, bad=BadRecords("fail"))
    assert next(records).values == {"a": "1"}
    with pytest.raises(DataError, match=r"x\.csv, line 3, column 3: 2 fields"):
        next(records)


def test_a_backslash_marks_quotes_as_mysql_writes_them(read: Any) -> None:
    text = 'a,b\n"say \\"no\\", he",1\n"two\\nlines \\\\",2\n"broken\\\nline",3\n'
    records, bad = read(text, "csv", escape="\\")
    assert not bad.listed
    values = [record.values["a"] for record in records]
    assert values == ['say "no", he', "two\nlines \\", "broken\nline"]


def test_aligned_texts_have_bars_between_them(read: Any) -> None:
    records, _ = read('one "big" | ||| eins\n', "csv", delimiter=" ||| ", header=False)
    assert records[0].values == {"0": 'one "big" |', "1": "eins"}
