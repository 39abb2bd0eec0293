from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords


def test_nested_values_are_found_by_names_with_dots(read: Any) -> None:
    (record,), _ = read('{"a": {"b": {"c": 1}, "d": 2}, "a.d": 3}\n', "jsonl")
    assert record.values == {
        "a": {"b": {"c": 1}, "d": 2}, "a.b": {"c": 1}, "a.b.c": 1, "a.d": 3,
    }  # fmt: skip


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
