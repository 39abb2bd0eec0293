from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

_TEXT = st.text(st.characters(codec="utf-8"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.dictionaries(_TEXT, _VALUES, max_size=4)), st.booleans())
def test_what_pythons_json_writes_is_read_back(
    read: Any, rows: list[dict[str, Any]], ascii_only: bool
) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows]
    records, bad = read("".join(lines), "jsonl")
    assert not bad.listed
    assert [record.values for record in records] == rows
    assert [record.place.line for record in records] == list(range(1, len(rows) + 1))


def test_nested_values_are_found_by_names_with_dots(read: Any) -> None:
    (record,), _ = read('{"a": {"b": {"c": 1}, "d": 2}, "a.d": 3}\n', "jsonl")
    assert record.values == {
        "a": {"b": {"c": 1}, "d": 2}, "a.b": {"c": 1}, "a.b.c": 1, "a.d": 3,
    }  # fmt: skip


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


def test_a_pair_of_surrogates_is_one_character(read: Any) -> None:
    assert read('{"a": "\\ud83d\\ude00"}', "jsonl")[0][0].values == {"a": "😀"}


def test_an_array_of_objects_is_read_and_what_is_no_object_is_bad(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text('\ufeff[{"a": {"b": "x"}},\n 7, {"a": NaN}, {"a": "\\ud800"}]', "utf-8")
    bad = BadRecords("skip")
    records = list(open_records(path, format="json", bad=bad))
    assert [str(one.place) for one in records] == [f"{path}, object 1", f"{path}, object 3"]
    assert records[0].values == {"a.b": "x", "a": {"b": "x"}}
    assert [told.split(": ", 1)[1][:9] for told in bad.listed] == ["a number,", "a lone su"]


@pytest.mark.parametrize(
    ("text", "told"), [('{"a": 1}', "not an array of objects"), ("[1,\n}", "line 2, column 1")]
)
def test_what_is_no_array_is_told(text, told, tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=told):
        list(open_records(path, format="json"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_json_file_may_be_one_line_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("t2t_torch.files._LONGEST_PLAIN", 4000)
    monkeypatch.setattr("t2t_torch.files._LONGEST_LINE", 4000)
    text = json.dumps([{"text": random.Random(i).random()} for i in range(500)]).encode()
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert len(list(open_records(path, format="json"))) == 500
    path.write_bytes(gzip.compress(b"[" + b" " * 200_000 + b"]"))
    with pytest.raises(DataError, match="bytes, as decompression bombs do"):
        list(open_records(path, format="json"))


def test_an_array_of_lists_has_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "data_full.json"
    rows = [["pay my bill", "pay"], ["hi", "greet"], ["hi"], {"0": "bye"}]
    path.write_text(json.dumps({"train": rows, "val": [["a", "b"]]}))
    bad = BadRecords("skip")
    records = open_records(path, format="json", bad=bad, options={"records": "train"})
    assert [one.values for one in records] == [
        {"0": "pay my bill", "1": "pay"}, {"0": "hi", "1": "greet"}, {"0": "bye"}
    ]  # fmt: skip
    assert bad.count == 1
