"""Answers to questions about a text."""

from __future__ import annotations

from made_tables import ROWS, best, draws, texts

CONTEXTS = [f"In {1000 + n} {text}" for n, text in enumerate(texts(1, 20))]
YEARS = [str(1000 + n) for n in range(ROWS)]
QUESTIONS = [f"When was the {text}?" for text in texts(2, 3)]


def test_answers_that_are_in_their_contexts_are_spans():
    made = best(question=QUESTIONS, context=CONTEXTS, answer=YEARS)
    assert made.kind == "spanqa"
    assert made.fields == {"question": "question", "context": "context", "answers": "answer"}


def test_answers_with_offsets_need_no_names():
    held = [{"text": [year], "answer_start": [3]} for year in YEARS]
    made = best(c0=QUESTIONS, c1=CONTEXTS, c2=held)
    assert (made.kind, made.fields["answers"]) == ("spanqa", "c2")
    wrong = [{"text": [year], "answer_start": [5]} for year in YEARS]
    assert best(c0=QUESTIONS, c1=CONTEXTS, c2=wrong).kind != "spanqa"


def test_answers_that_are_not_in_the_contexts_are_written():
    made = best(question=QUESTIONS, context=CONTEXTS, answer=draws(3, "yes it is", "no, never"))
    assert made.kind == "questioncontext2text"
