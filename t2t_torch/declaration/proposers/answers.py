"""Proposals to answer questions about a text: with a part of it, or with a text of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t2t_torch.declaration.columns import FileColumns, Inspected
from t2t_torch.declaration.proposal import Proposal
from t2t_torch.declaration.rows import UnfitError, answers, located
from t2t_torch.declaration.schema import Column
from t2t_torch.registry import register_proposer

_QUESTION_NAMES = "question query"
_CONTEXT_NAMES = "context passage paragraph document article text"
_ANSWER_NAMES = "answer answers"
_SAMPLE = 300  # rows
_LONGEST = 0.5  # maximum length of an answer without offsets, compared to its context


@register_proposer("spanqa")
def propose_spans(table: FileColumns) -> Iterator[Proposal]:
    """Proposes parts of a context as answers, if the answers are found in it."""
    texts = [one for one in table if one.is_plain and not one.is_number and one.mean_words > 1]
    for answer in table:
        for context in texts:
            found = _found(answer, context) if answer is not context else 0.0
            if found < 0.5:
                continue
            for question in texts:
                if question in (answer, context) or question.name in table.derived:
                    continue
                score = found * _question(question, context)
                if answer.is_plain and not answer.is_named(_ANSWER_NAMES):
                    score *= 0.7
                fields = {
                    "question": question.name, "context": context.name, "answers": answer.name
                }  # fmt: skip
                reason = f"{found:.0%} of {answer.name!r} are found in {context.name!r}"
                meaning = f"the part of {context.name!r} that answers {question.name!r}"
                yield Proposal("spanqa", fields, score, meaning, [reason])


def _question(one: Inspected, context: Inspected) -> float:
    """Returns how well a text looks like questions about another one."""
    asked = sum(n for value, n in one.counts.items() if "?" in value or "？" in value)
    score = 0.6 + 0.25 * (asked * 2 > len(one.values)) + 0.15 * one.is_named(_QUESTION_NAMES)
    return score * (1.0 if one.mean_words < context.mean_words else 0.7)


def _found(answer: Inspected, context: Inspected) -> float:
    """Returns the fraction of the answers that are parts of their contexts, not all of them."""
    rows = [
        (value, text)
        for value, text in zip(answer.rows[:_SAMPLE], context.rows[:_SAMPLE], strict=True)
        if value is not None and isinstance(text, str)
    ]
    if not rows or (answer.is_number and not answer.is_named(_ANSWER_NAMES)):
        return 0.0
    found = sum(_is_part(value, text, plain=answer.is_plain) for value, text in rows)
    return found / len(rows)


def _is_part(value: Any, text: str, *, plain: bool) -> bool:
    if plain and len(str(value)) > _LONGEST * len(text):
        return False
    if not plain and not _has_text(value):
        return False
    try:
        located(answers([value], Column(column=("answers",))), text)
    except (UnfitError, TypeError, AttributeError):
        return False
    return True


def _has_text(value: Any) -> bool:
    """Returns whether a value has the form of answers: objects with a text, or texts."""
    held = value if isinstance(value, list) else [value]
    return bool(held) and all(isinstance(one, Mapping) and "text" in one for one in held)


@register_proposer("questioncontext2text")
def propose_written_answers(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a written answer to a question about a context, by the names of the columns."""
    texts = [one for one in table if (one.text or one.label) and not one.is_binary]
    by_role = [
        [one for one in texts if one.is_named(names)]
        for names in (_QUESTION_NAMES, _CONTEXT_NAMES, _ANSWER_NAMES)
    ]
    if not all(by_role):
        return
    question, context, answer = (held[0] for held in by_role)
    if len({question.name, context.name, answer.name}) < 3 or context.mean_words < 4:
        return
    score = 0.4 if _found(answer, context) >= 0.5 else 0.9
    fields = {"inputs": question.name, "context": context.name, "targets": answer.name}
    doubts = ["the answers are no parts of the contexts."] if score > 0.5 else []
    meaning = f"{answer.name!r}, written from {question.name!r} and {context.name!r}"
    yield Proposal("questioncontext2text", fields, score, meaning, (), doubts)
