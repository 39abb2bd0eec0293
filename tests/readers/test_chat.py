"""Conversations with an assistant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords

OPENAI = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you."},
    ]
}
SHAREGPT = {
    "id": "1",
    "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}],
}


def match(path: Path, content: str) -> Match | None:
    path.write_text(content)
    matches = FORMATS["chat"].matches
    assert matches is not None
    return matches(Head(path))


def read(path: Path, bad: BadRecords, **options: Any) -> list[tuple[str, str]]:
    records = open_records(path, format="chat", bad=bad, options=options)
    return [(one.values["prompt"], one.values["response"]) for one in records]


def test_each_answer_follows_from_the_turns_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert match(path, f"{json.dumps(OPENAI)}\n" * 2) is not None
    answers = [("Be kind.\nHi", "Hello!"), ("Be kind.\nHi\nHello!\nBye", "See you.")]
    assert read(path, BadRecords()) == answers * 2


def test_an_array_may_be_in_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    found = match(path, json.dumps({"data": [SHAREGPT] * 3}, indent=1))
    assert found is not None
    assert found.options == {"records": "data"}
    assert read(path, BadRecords(), **found.options) == [("Hi", "Hello!")] * 3


def test_records_without_turns_are_bad(tmp_path: Path) -> None:
    path, bad = tmp_path / "a.jsonl", BadRecords("skip")
    rows = [SHAREGPT, {"conversations": ["Hi"]}, {"text": "Hi"}, 3]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read(path, bad) == [("Hi", "Hello!")]
    assert bad.count == 3
    path.write_text("{}")
    with pytest.raises(DataError):
        read(path, BadRecords())


@pytest.mark.parametrize(
    "row", [{"messages": ["a"], "label": "x"}, {"text": "a"}, [1], {"messages": []}]
)
def test_it_matches_no_other_json(row: Any, tmp_path: Path) -> None:
    assert match(tmp_path / "a.jsonl", f"{json.dumps(row)}\n" * 5) is None
