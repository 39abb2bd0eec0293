from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.readers.formats import open_records


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


def test_columns_are_numbered_without_a_header(read: Any) -> None:
    records, bad = read("x,y\n1,2\n3\n", "csv", header=False)
    assert [r.values for r in records] == [{"0": "x", "1": "y"}, {"0": "1", "1": "2"}]
    assert bad.listed[0].endswith("1 field, where 2 were expected (0, 1)")


def test_with_given_columns_the_first_row_is_data(read: Any) -> None:
    assert read("x,y\n", "csv", columns=["a", "b"])[0][0].values == {"a": "x", "b": "y"}


def test_an_empty_file_with_given_columns_has_no_records(read: Any) -> None:
    assert read("", "csv", columns=["a"])[0] == []
    assert read("", "tsv", header=False)[0] == []


@pytest.mark.parametrize("delimiter", ["", "\n", '"', ",,"])
def test_what_cannot_delimit_is_refused_at_once(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(UsageError, match="cannot delimit fields"):
        open_records(tmp_path / "absent.csv", options={"delimiter": delimiter})


def test_a_backslash_marks_quotes_as_mysql_writes_them(read: Any) -> None:
    text = 'a,b\n"say \\"no\\", he",1\n"two\\nlines \\\\",2\n"broken\\\nline",3\n'
    records, bad = read(text, "csv", escape="\\")
    assert not bad.listed
    values = [record.values["a"] for record in records]
    assert values == ['say "no", he', "two\nlines \\", "broken\nline"]


def test_aligned_texts_have_bars_between_them(read: Any) -> None:
    records, _ = read('one "big" | ||| eins\n', "csv", delimiter=" ||| ", header=False)
    assert records[0].values == {"0": 'one "big" |', "1": "eins"}
