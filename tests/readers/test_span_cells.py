"""Tables with spans in cells."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords

SPANS = json.dumps([{"start": 0, "end": 8, "text": "Ana Lima", "labels": ["PER"]}])
TEXT = "Ana Lima flew."


def match(path: Path, rows: Sequence[list[str]], delimiter: str = ",") -> Match | None:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    matches = FORMATS["span_cells"].matches
    assert matches is not None
    return matches(Head(path))


@pytest.mark.parametrize("cell", [SPANS, '[[0, 8, "PER"]]', "[(0, 8, 'PER')]"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_spans_of_a_cell_become_tags(cell: str, delimiter: str, tmp_path: Path) -> None:
    rows = [["id", "label", "body"], ["1", cell, TEXT], ["2", "", "Nobody."]]
    found = match(tmp_path / "a.csv", rows, delimiter)
    assert found is not None
    records = open_records(tmp_path / "a.csv", format="span_cells", options=found.options)
    assert [one.values["tags"] for one in records] == [["B-PER", "I-PER", "O", "O"], ["O", "O"]]


def test_rows_without_a_list_of_spans_are_bad(tmp_path: Path) -> None:
    path, bad = tmp_path / "a.csv", BadRecords("skip")
    rows = [["text", "label"], [TEXT, SPANS], [TEXT, "[1]"], [TEXT, "x"], ["Ana", SPANS]]
    match(path, rows)
    assert len(list(open_records(path, format="span_cells", bad=bad))) == 1
    assert [one.partition(": ")[2][:12] for one in bad.listed] == ["no text with"] * 2 + [
        "the span (0,"
    ]
    with pytest.raises(UsageError, match="no column 'spans'; the columns are text, label"):
        list(open_records(path, format="span_cells", options={"spans": "spans"}))


def test_it_matches_no_other_lists(tmp_path: Path) -> None:
    for cell in ("['a', 'b']", "[1, 2, 3]", "[]", '[[90, 95, "PER"]]', "text"):
        rows = [["text", "labels"], *[[TEXT, cell]] * 5]
        assert match(tmp_path / "a.csv", rows) is None
