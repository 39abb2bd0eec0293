"""Proposals to generate text, or to answer questions with a part of a text or one's own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t2t_torch.declaration.columns import FileColumns, Inspected, overlap, shared_words
from t2t_torch.declaration.proposal import Proposal, bodies, texts_of
from t2t_torch.declaration.rows import UnfitError, answers, located
from t2t_torch.declaration.schema import Column
from t2t_torch.errors import listed
from t2t_torch.registry import register_proposer

_WRITTEN_NAMES = (
    "output response completion answer target targets highlights summary translation reply "
    "correction corrected simple simplified paraphrase tgt trg"
)
_SOURCE_NAMES = "instruction input inputs prompt question source document article context src"
_CERTAIN = 0.92  # score of two languages, or of two names
_LONGER = 2.5  # of a text that is no translation of the other
_REVERSED = 0.85  # factor of the score of the reverse direction


@register_proposer("text2text")
def propose_generation(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a text from another one: translations, answers, summaries."""
    texts = texts_of(table)
    written = [one for one in texts if one.is_named(_WRITTEN_NAMES)]
    has_label = bool(table.best("label", 0.6) or table.best("number", 0.7))
    if len(texts) > 2 and (written or not has_label):
        yield _from_several(texts, (written or texts)[-1], 0.9 if written else 0.68)
    for n, first in enumerate(texts):
        for second in texts[n + 1 :]:
            source, target, score, reason = _direction(first, second)
            if has_label and score < _CERTAIN:
                score *= 0.75  # the label is rather learnt
            message = (
                f"{source.name!r} is used as the input and {target.name!r} as the text to generate."
            )
            score *= min(first.text, second.text) ** 0.5
            fields = {"inputs": source.name, "targets": target.name}
            meaning = f"{target.name!r} from {source.name!r}"
            yield Proposal("text2text", fields, score, meaning, [reason], [message])
            fields = {"inputs": target.name, "targets": source.name}
            meaning = f"{source.name!r} from {target.name!r}, the other direction"
            yield Proposal("text2text", fields, _REVERSED * score, meaning, [reason])


def _direction(first: Inspected, second: Inspected) -> tuple[Inspected, Inspected, float, str]:
    """Returns source and target of two texts, a score, and the reason for it."""
    for source, target in ((first, second), (second, first)):
        named = source.is_named(_SOURCE_NAMES) + target.is_named(_WRITTEN_NAMES)
        against = source.is_named(_WRITTEN_NAMES) + target.is_named(_SOURCE_NAMES)
        if named > against:
            return source, target, 0.84 + 0.05 * named, "named as source and target"
    longer, shorter = sorted((first, second), key=lambda one: -one.mean_words)
    words, characters = longer.mean_words / shorter.mean_words, longer.mean_characters
    if min(words, characters / shorter.mean_characters) > _LONGER:
        return longer, shorter, 0.65, "a long and a short text"
    if shared_words(first, second) < 0.1:
        return first, second, 0.95, "two languages"
    if overlap(first, second) > 0.05:
        return first, second, 0.75, "alike in their words"
    return first, second, 0.7, "two texts"


def _from_several(texts: list[Inspected], target: Inspected, score: float) -> Proposal:
    sources = [one for one in texts if one is not target]
    named = [one for one in sources if one.is_named(_SOURCE_NAMES)] or sources
    names = [one.name for one in named]
    shown = ", ".join(map(repr, names))
    message = f"{target.name!r} is used as the text to generate from {shown}."
    inputs = names if len(names) > 1 else names[0]
    fields = {"inputs": inputs, "targets": target.name}
    return Proposal("text2text", fields, score, f"{target.name!r} from {shown}", (), [message])


@register_proposer("text2self")
def propose_language_model(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a language model of the texts, which uses no labels."""
    if set(table.columns) == {"text"}:
        yield Proposal("text2self", {"targets": "text"}, 0.6, "a language model")
        return
    doubt = (
        'no label column was found, so the declaration is of a language model ("text2self"); if '
        'a column is the label, set "kind": "text2class" and name the column as "targets".'
    )
    for body in bodies(table):
        names = listed(map(repr, body.names))
        meaning = f"a language model of {names}"
        doubts = [*body.doubts, doubt]
        yield Proposal(
            "text2self", {"targets": body.column}, 0.45 * body.score, meaning, (), doubts
        )


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
    """Returns the fraction of the answers that are parts of their contexts, not all of them; 0 if
    about as many are parts of the contexts of other rows.
    """
    rows = [
        (value, text)
        for value, text in zip(answer.rows[:_SAMPLE], context.rows[:_SAMPLE], strict=True)
        if value is not None and isinstance(text, str)
    ]
    if not rows or (answer.is_number and not answer.is_named(_ANSWER_NAMES)):
        return 0.0
    found = sum(_is_part(value, text, plain=answer.is_plain) for value, text in rows)
    if answer.is_plain:
        contexts = [text for _, text in rows]
        moved = contexts[len(rows) // 2 :] + contexts[: len(rows) // 2]
        others = [str(v) in two for (v, one), two in zip(rows, moved, strict=True) if one != two]
        chance = sum(others) / max(1, len(others))
        found *= chance * 2 <= found / len(rows)
    return found / len(rows)


def _is_part(value: Any, text: str, *, plain: bool) -> bool:
    """Returns whether a text, or objects with texts, are parts of a text."""
    held = value if isinstance(value, list) else [value]
    has_texts = all(isinstance(one, Mapping) and "text" in one for one in held) and bool(held)
    if not (len(str(value)) <= _LONGEST * len(text) if plain else has_texts):
        return False
    try:
        located(answers([value], Column(column=("answers",))), text)
    except (UnfitError, TypeError, AttributeError):
        return False
    return True


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
    doubts = ["the answers are no parts of the contexts, or of all."] if score > 0.5 else []
    meaning = f"{answer.name!r}, written from {question.name!r} and {context.name!r}"
    yield Proposal("questioncontext2text", fields, score, meaning, (), doubts)
