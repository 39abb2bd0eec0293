"""Proposals to generate text: from a text, from a question with its context, or from nothing."""

from __future__ import annotations

from collections.abc import Iterator

from t2t_torch.declaration.columns import FileColumns, Inspected, overlap, shared_words
from t2t_torch.declaration.proposal import Proposal
from t2t_torch.declaration.roles import bodies, some, texts_of
from t2t_torch.registry import register_proposer

_WRITTEN_NAMES = (
    "output response completion answer target targets highlights summary translation reply "
    "correction corrected simple simplified paraphrase tgt trg"
)
_SOURCE_NAMES = "instruction input inputs prompt question source document article context src"
_CERTAIN = 0.92  # score of two languages, or of two names
_REVERSED = 0.85  # factor of the score of the reverse direction


@register_proposer("text2text")
def propose_generation(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a text from another one: translations, answers, summaries."""
    texts = texts_of(table)
    written = [one for one in texts if one.is_named(_WRITTEN_NAMES)]
    if written and len(texts) > 2:
        yield _from_several(texts, written[-1])
    has_label = bool(table.best("label", 0.8) or table.best("number", 0.7))
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
    if shared_words(first, second) < 0.1:
        return first, second, 0.95, "two languages"
    longer, shorter = sorted((first, second), key=lambda one: -one.mean_words)
    if longer.mean_words > 2.5 * shorter.mean_words:
        return longer, shorter, 0.65, "a long and a short text"
    if overlap(first, second) > 0.05:
        return first, second, 0.75, "alike in their words"
    return first, second, 0.7, "two texts"


def _from_several(texts: list[Inspected], target: Inspected) -> Proposal:
    sources = [one for one in texts if one is not target]
    named = [one for one in sources if one.is_named(_SOURCE_NAMES)] or sources
    names = [one.name for one in named]
    shown = ", ".join(map(repr, names))
    message = f"{target.name!r} is used as the text to generate from {shown}."
    inputs = names if len(names) > 1 else names[0]
    fields = {"inputs": inputs, "targets": target.name}
    return Proposal("text2text", fields, 0.9, f"{target.name!r} from {shown}", (), [message])


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
        names = some(list(map(repr, body.names)))
        meaning = f"a language model of {names}"
        doubts = [*body.doubts, doubt]
        yield Proposal(
            "text2self", {"targets": body.column}, 0.45 * body.score, meaning, (), doubts
        )
