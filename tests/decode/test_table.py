"""Rows as lines: what a cell may hold, and that a reader of CSV finds it again."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from t2t_torch.decode.outputs import cell, line, write_table


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "1"),
        (3, "3"),
        (0.123456789, "0.123457"),
        ("a b", "a b"),
        (["a", "b"], '["a", "b"]'),
        ({"ü": 0.5}, '{"ü": 0.5}'),
    ],
)
def test_a_value_becomes_text(value: Any, expected: str) -> None:
    assert cell(value) == expected


def test_a_row_is_one_line_whatever_is_in_it() -> None:
    assert line(["a\tb", "c\nd\re", "f\\n"]) == "a\\tb\tc\\nd\\re\tf\\\\n\n"


def test_a_reader_of_csv_finds_the_cells_again() -> None:
    stream = io.StringIO()
    rows = [['he said "no"', 1.5, None], ['"', "", {"a": 1}]]
    assert write_table(stream, ["text", "score", "more"], rows) == 2
    stream.seek(0)
    read = list(csv.reader(stream, delimiter="\t"))
    assert read == [["text", "score", "more"], ['he said "no"', "1.5", ""], ['"', "", '{"a": 1}']]
