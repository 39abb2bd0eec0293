"""Texts with spans of annotation tools, and encodings of text files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.readers.formats import open_records
from t2t_torch.readers.spans import tagged
from t2t_torch.readers.text_file import BadRecords

ROW = {"text": "Ana Lima flew.", "labels": [[0, 8, "PER"]]}


def read(path: Path, content: str, bad: BadRecords | None = None, **options: Any) -> list[Any]:
    path.write_text(content, "utf-8")
    return [
        record.values for record in open_records(path, format="spans", bad=bad, options=options)
    ]


def test_a_span_within_a_word_is_extended_and_an_overlapping_one_is_left_out() -> None:
    words, tags, cut = tagged("Ana Lima flew.", [(0, 7, "PER"), (4, 13, "X")])
    assert (words, tags) == (["Ana", "Lima", "flew", "."], ["B-PER", "I-PER", "O", "O"])
    assert cut == 2


def test_adjacent_spans_begin_anew_and_chinese_characters_are_words() -> None:
    assert tagged("去北京10天", [(1, 3, "LOC"), (3, 6, "TIME")]) == (
        ["去", "北", "京", "10", "天"], ["O", "B-LOC", "I-LOC", "B-TIME", "I-TIME"], 0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_lists_on_lines_and_one_array_are_the_same(name: str, tmp_path: Path) -> None:
    pairs = [[ROW["text"], {"entities": ROW["labels"]}]] * 2
    on_lines = read(tmp_path / name, "".join(f"{json.dumps(pair)}\n" for pair in pairs))
    in_array = read(tmp_path / "array.json", json.dumps(pairs, indent=1))
    assert on_lines == in_array
    assert [row["tags"] for row in on_lines] == [["B-PER", "I-PER", "O", "O"]] * 2


def test_the_ends_of_dataturks_are_inclusive(tmp_path: Path) -> None:
    point = {"start": 0, "end": 7, "text": "Ana Lima"}
    row = {"content": ROW["text"], "annotation": [{"label": ["PER"], "points": [point]}]}
    (made,) = read(tmp_path / "rows.json", json.dumps(row) + "\n")
    assert made["tags"] == ["B-PER", "I-PER", "O", "O"]


def test_records_of_other_forms_and_spans_outside_of_the_text_are_bad(tmp_path: Path) -> None:
    rows = [ROW, {"text": "no spans"}, {**ROW, "labels": [[0, 99, "PER"]]}, [1], "text", ROW]
    bad = BadRecords("skip")
    made = read(tmp_path / "rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows), bad)
    assert len(made) == 2
    assert [one.split(": ", 1)[1] for one in bad.listed] == [
        "no text with spans: none of the known forms",
        "the span (0, 99, 'PER') is not within 14 characters",
        *["no text with spans: none of the known forms"] * 2,
    ]
