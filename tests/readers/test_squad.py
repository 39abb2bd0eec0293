from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st

from t2t_torch.errors import DataError

CONTEXT = "Ähm, the cat sat on the mat."


def _file(*questions: Any, context: Any = CONTEXT) -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "1.1", "data": [{"title": "Cats", "paragraphs": [paragraph]}]})


def _question(**changes: Any) -> dict[str, Any]:
    good = {"id": "q", "question": "Who?", "answers": [{"text": "cat", "answer_start": 9}]}
    return {**good, **changes}


_TEXT = st.text(st.characters(codec="utf-8"))


def test_an_impossible_question_has_no_answers(read: Any) -> None:
    asked = _question(is_impossible=True, answers=[], plausible_answers=[{"text": "mat"}])
    (record,), _ = read(_file(asked), "squad")
    assert record.values["is_impossible"]
    assert record.values["answers"] == []


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (_question(answers=[{"text": "cat", "answer_start": 8}]), "'cat' does not stand at ch"),
        (_question(answers=[{"text": "cat", "answer_start": -19}]), "does not stand"),
        (_question(answers=[{"text": "", "answer_start": 0}]), "does not stand"),
        (_question(answers=[{"text": "cat"}]), "answer_start"),
        (_question(answers=["cat"]), "answer_start"),
        (_question(answers=[]), "no answer, though not"),
        (_question(answers={}), '"answers" no list'),
        (_question(is_impossible="no"), '"is_impossible" is not true or false'),
        (_question(question=None), 'no text "question"'),
        (_question(question="\ud800"), "lone surrogate"),
        ("Who?", 'no text "question"'),
    ],
)
def test_a_bad_question_is_left_out_with_its_number(read: Any, question: Any, told: str) -> None:
    good = _question(id="good")
    records, bad = read(_file(good, question, good), "squad")
    assert [record.values["id"] for record in records] == ["good", "good"]
    assert bad.count == 1
    assert "file.squad, question 2: " in bad.listed[0]
    assert told in bad.listed[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1: no JSON"),
        ('{"data": [\n1,]}', r"line 2, column \d: no JSON"),
        ('{"data": ' + "[" * 200_000, "no JSON"),
        ("[]", "not of SQuAD's form"),
        ('{"a": 1}', "format jsonl"),
        ('{"data": [1]}', 'article 1: no list "paragraphs"'),
        ('{"data": [{"paragraphs": [{"context": "a"}]}]}', 'paragraph 1: no list "qas"'),
        (_file(context=3), 'paragraph 1: no text "context"'),
        (b'{"data": "\xe9"}', "byte 11 is not UTF-8"),
    ],
)
def test_a_file_of_another_form_is_refused_even_where_bad_rows_are_left_out(
    read: Any, text: str, told: str
) -> None:
    with pytest.raises(DataError, match=told) as caught:
        read(text, "squad")
    assert "file.squad" in str(caught.value)
