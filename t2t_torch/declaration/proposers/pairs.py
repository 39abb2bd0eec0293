"""Proposals to learn from two or three texts: pairs, queries with documents, rankings."""

from __future__ import annotations

from collections.abc import Iterator

from t2t_torch.declaration.columns import FileColumns, overlap
from t2t_torch.declaration.proposal import Proposal, are_alike, is_heading, pairs, repeats, texts_of
from t2t_torch.declaration.proposers.classes import of_labels, targets
from t2t_torch.registry import register_proposer

_PAIR_NUMBERS = "score similarity relatedness"


@register_proposer("textpair2class")
def propose_pair_classes(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a class for each pair of texts."""
    for first, second, score in pairs(table):
        for label, fit in targets(table, "label"):
            if label in (first, second):
                continue
            is_query = label.is_binary and label.is_number and repeats(first)
            is_asked = first.is_named("question query") and second.is_named("answer response reply")
            is_of_one = sum(are_alike(label, one) for one in table) == 2  # the other is the other's
            fit *= 0.75 if is_query or (is_asked and not label.is_binary) else 1.0
            fit *= 0.8 if is_of_one else 1.0
            doubt = (
                "the two texts are used as a pair; if they are parts of one text, it is "
                f'"kind": "text2class", "fields": {{"inputs": ["{first.name}", "{second.name}"], '
                f'"targets": "{label.name}"}}.'
            )
            fields = {"first": first.name, "second": second.name, "targets": label.name}
            both = score * fit
            meaning = f"the label {label.name!r} of a pair of texts"
            reasons = [f"{first.name!r} and {second.name!r} are alike"]
            doubts = [doubt, *of_labels(label)]
            yield Proposal("textpair2class", fields, both, meaning, reasons, doubts)


@register_proposer("textpair2real")
def propose_pair_numbers(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a number for each pair of texts."""
    for first, second, score in pairs(table):
        for number, fit in targets(table, "number"):
            named = 0.1 * number.is_named(_PAIR_NUMBERS)
            fields = {"first": first.name, "second": second.name, "targets": number.name}
            meaning = f"the number {number.name!r} of a pair of texts"
            reasons = [f"{first.name!r} and {second.name!r} are alike"]
            both = score * min(1.0, fit + named)
            yield Proposal("textpair2real", fields, both, meaning, reasons)


@register_proposer("queryrelevance")
def propose_relevance(table: FileColumns) -> Iterator[Proposal]:
    """Proposes which documents are relevant to a query, if a text repeats and labels are 0, 1."""
    texts = texts_of(table)
    for label, fit in targets(table, "label"):
        if not label.is_binary or not label.is_number:
            continue
        for query in texts:
            for document in texts:
                if query is document or not repeats(query) or document.distinct <= query.distinct:
                    continue
                doubt = (
                    f"{query.name!r} often repeats, so it is used as a query; otherwise it is "
                    '"kind": "textpair2class" with "first" and "second".'
                )
                heading = is_heading(query, [query, document])
                fields = {"query": query.name, "document": document.name, "targets": label.name}
                score = min(query.text, document.text) * fit * (0.7 if heading else 1.0)
                meaning = f"which {document.name!r} is relevant to a {query.name!r}"
                reasons = [f"{query.name!r} repeats"]
                yield Proposal("queryrelevance", fields, score, meaning, reasons, [doubt])


_RANKED = {
    "query": "query question anchor prompt",
    "positive": "positive pos chosen relevant",
    "negative": "negative neg rejected irrelevant",
}


@register_proposer("pairranking")
def propose_ranking(table: FileColumns) -> Iterator[Proposal]:
    """Proposes which of two texts answers a query better."""
    texts = [one for one in table if one.text > 0.2]
    named = {
        role: next((one for one in texts if one.is_named(names)), None)
        for role, names in _RANKED.items()
    }
    fields = {role: one.name for role, one in named.items() if one is not None}
    if len(set(fields.values())) == len(_RANKED):
        yield Proposal("pairranking", fields, 1.0, "which of two texts fits a query better")
    elif len(texts) == len(_RANKED) and not table.best("label"):
        query, positive, negative = texts
        closer = overlap(query, positive) - overlap(query, negative)
        names = (query.name, positive.name, negative.name)
        score = 0.75 if closer > 0.05 else 0.3
        fields = dict(zip(_RANKED, names, strict=True))
        yield Proposal("pairranking", fields, score, "which of two texts fits a query better")
