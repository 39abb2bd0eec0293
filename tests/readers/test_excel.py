"""Workbooks: sheets, headers and values."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records

openpyxl = pytest.importorskip("openpyxl")


def values_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [record.values for record in open_records(path, options=options)]


def test_rows_have_the_columns_of_the_first_and_places_in_the_sheet(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["text", None, "when"], ["a", 1.5], [], ["b", True, datetime.date(2024, 1, 2)]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert [one.place.line for one in open_records(tmp_path / "a.xlsx")] == [2, 4]
    assert values_of(tmp_path / "a.xlsx") == [
        {"text": "a", "Unnamed: 1": 1.5, "when": None},
        {"text": "b", "Unnamed: 1": True, "when": "2024-01-02 00:00:00"},
    ]
    rows = values_of(tmp_path / "a.xlsx", header=False)
    assert rows[0] == {"0": "text", "1": None, "2": "when"}


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a", "a"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match="two columns are 'a'"):
        values_of(tmp_path / "a.xlsx")


def test_sheets_of_charts_are_passed_over(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.create_chartsheet("Chart", 0).add_chart(openpyxl.chart.BarChart())
    book.worksheets[0].append(["a", "b"])
    book.worksheets[0].append([1, 2])
    book.save(tmp_path / "a.xlsx")
    assert values_of(tmp_path / "a.xlsx") == [{"a": 1, "b": 2}]
    with pytest.raises(DataError, match="no sheet 'Chart', but Sheet"):
        values_of(tmp_path / "a.xlsx", sheet="Chart")
