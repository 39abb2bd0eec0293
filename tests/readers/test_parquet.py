from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_torch.errors import DataError
from t2t_torch.readers import tables as reader
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

_TEXT = st.none() | st.text(st.characters(codec="utf-8"))
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": _TEXT,
            "words": st.lists(st.text(st.characters(codec="utf-8")), max_size=3),
            "number": st.integers(-(2**63), 2**63 - 1),
            "real": st.floats(allow_nan=False),
        }
    )
)
_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("words", pa.list_(pa.string())),
        ("number", pa.int64()),
        ("real", pa.float64()),
    ]
)


@settings(deadline=None)
@given(_ROWS, st.booleans())
def test_rows_are_read_back(folder: Path, rows: list[dict[str, Any]], packed: bool) -> None:
    path = folder / "x.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, _SCHEMA), path, row_group_size=2)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    records = list(open_records(path))
    assert [record.values for record in records] == rows
    assert [record.place.line for record in records] == list(range(1, len(rows) + 1))


def test_fields_of_structs_are_found_by_names_with_dots(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": [{"b": 1}]}), path)
    assert next(open_records(path)).values == {"a": {"b": 1}, "a.b": 1}


def test_a_string_that_is_no_utf8_spoils_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_BATCH_ROWS", 2)
    raw = pa.array([b"a", b"b", b"\xe9", b"d", b"e"], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 5, raw.buffers())
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"n": range(5), "text": strings}), path)
    bad = BadRecords("skip")
    records = list(open_records(path, bad=bad))
    assert [record.values["text"] for record in records] == ["a", "b", "d", "e"]
    assert [record.place.line for record in records] == [1, 2, 4, 5]
    assert bad.listed == [f"{path}, row 3: the column 'text' is not UTF-8 (unexpected end of data)"]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), path)
    with pytest.raises(DataError, match="two columns 'a'"):
        list(open_records(path))
