"""Questions about a text, in the JSON of SQuAD.  Rajpurkar et al. 2016 and 2018."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.jsonl import SURROGATE, load_json


def read_squad(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields the questions of a file of version 1.1 or 2.0, which is loaded whole.

    A record has "id", "title", "question", "context", "is_impossible" (of version 2.0; else False)
    and "answers", a list of {"text", "start"}, where "start" counts the context's characters from
    0; there are none if the question is impossible.  A place has the number of the question, from
    1.  A question is bad if a part of it is missing or is no text, if an answer does not stand
    where it is said to, or if a question that is not impossible has no answer.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad questions.

    Raises:
      DataError: the file cannot be read, is no JSON, or not of SQuAD's form down to paragraphs.
    """
    number = 0
    for article in _articles(path):
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                number += 1
                place = Place(path, number, unit="question")
                try:
                    values = _question(article.get("title", ""), paragraph["context"], question)
                    json.dumps(values, ensure_ascii=False).encode()
                except UnicodeEncodeError:
                    bad.report(place, SURROGATE)
                except _Fault as fault:
                    identity = question.get("id", "?") if isinstance(question, dict) else "?"
                    bad.report(place, f"(id {identity}) {fault}")
                else:
                    yield Record(place, values)


class _Fault(Exception):
    """What is wrong with a question."""


def _articles(path: Path) -> list[dict[str, Any]]:
    loaded = load_json(path)
    articles = loaded.get("data") if isinstance(loaded, dict) else None
    if not isinstance(articles, list):
        raise DataError(
            f'{path} is not of SQuAD\'s form, which is {{"data": [{{"paragraphs": [{{"context": '
            '..., "qas": [...]}]}]}. '
            "A file with one object on each line is of the format jsonl, "
            "an array of objects of the format json."
        )
    for i, article in enumerate(articles, 1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            raise DataError(f'{path}, article {i}: no list "paragraphs".')
        for j, paragraph in enumerate(paragraphs, 1):
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
                raise DataError(f'{path}, article {i}, paragraph {j}: no list "qas".')
            if not isinstance(paragraph.get("context"), str):
                raise DataError(f'{path}, article {i}, paragraph {j}: no text "context".')
    return articles


def _question(title: Any, context: str, question: Any) -> dict[str, Any]:
    if not isinstance(question, dict) or not isinstance(question.get("question"), str):
        raise _Fault('no text "question"')
    impossible = question.get("is_impossible", False)
    answers = question.get("answers", [])
    if not isinstance(impossible, bool) or not isinstance(answers, list):
        raise _Fault('"is_impossible" is not true or false, or "answers" no list')
    if not answers and not impossible:
        raise _Fault('no answer, though not "is_impossible"')
    return {
        "id": str(question.get("id", "")),
        "title": str(title),
        "question": question["question"],
        "context": context,
        "answers": [] if impossible else [_answer(context, answer) for answer in answers],
        "is_impossible": impossible,
    }


def _answer(context: str, answer: Any) -> dict[str, Any]:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        raise _Fault('an answer without a text "text" and a number "answer_start"')
    if start < 0 or not text or not context.startswith(text, start):
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise _Fault(f"the answer {text!r} does not stand at character {start}; {there!r} does")
    return {"text": text, "start": start}
