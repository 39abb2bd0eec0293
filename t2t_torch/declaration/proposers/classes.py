"""Proposals to learn labels or numbers of a text: classes, several labels, numbers, dialogues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from t2t_torch.declaration.columns import LABEL_NAMES, FileColumns, Inspected
from t2t_torch.declaration.proposal import Body, Proposal, bodies, count
from t2t_torch.declaration.rows import ON
from t2t_torch.errors import listed
from t2t_torch.registry import register_proposer
from t2t_torch.runtime.prediction import WRITTEN_LIST
from t2t_torch.text.near_duplicates import spellings

_NUMBER_NAMES = "score rating stars star price value grade"
_FEWEST_ONE_HOT = 3  # columns of 0 and 1 that are surely labels of one kind
_SHOWN = 5


@register_proposer("text2class")
def propose_classes(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a class for each text, from a column of labels."""
    labels = targets(table, "label")
    for body in bodies(table):
        for label, fit in labels:
            if label.name in body.names:
                continue
            is_one_of_several = first_of_a_list(table, label) or label.separator[1] >= 0.9
            score = 0.7 * fit if is_one_of_several else fit
            meaning = f"the label {label.name!r}"
            reasons = [*body.reasons, f"{label.name!r} has {count(label.distinct, 'label')}"]
            doubts = [*_others(table, labels, label), *of_labels(label)]
            yield body.proposal("text2class", label.name, score, meaning, reasons, doubts)
        yield from _one_hot(table, body, "text2class")


def targets(table: FileColumns, role: Literal["label", "number"]) -> list[tuple[Inspected, float]]:
    """Returns the columns of labels or numbers with their fit, the best first.

    Columns that another one determines fit less, and judgements with a confidence more; of equal
    ones, the last is a little better, as files end with the target more often than not.
    """
    place = {name: n / len(table.columns) for n, name in enumerate(table.columns)}
    fits = [
        (one, getattr(one, role) * (0.8 if one.name in table.derived else 1.0))
        for one in table.best(role)
    ]
    judged = set(table.derived.values())  # with a confidence or a gold column of their own
    fits = [
        (one, min(1.0, fit - 0.02 + 0.02 * place[one.name] + 0.08 * (one.name in judged)))
        for one, fit in fits
    ]
    return sorted(fits, key=lambda one: -one[1])


def _others(
    table: FileColumns, labels: Sequence[tuple[Inspected, float]], chosen: Inspected
) -> list[str]:
    same = table.twins.get(chosen.name)
    likely = [one.name for one, fit in labels if one is not chosen and fit > 0.5]
    others = [repr(name) for name in likely if same is None or table.twins.get(name) != same]
    if not others:
        return []
    return [f"{chosen.name!r} is used as the label; it could also be {listed(others)}."]


def first_of_a_list(table: FileColumns, label: Inspected) -> bool:
    """Returns whether a label is only the first of several labels of a row."""
    for one in table:
        if one.is_list and any(len(value) > 1 for value in one.values):
            rows = zip(label.rows, one.rows, strict=True)
            if all(a is None or not b or str(a) == b[0] for a, b in rows):
                return True
    return False


def of_labels(label: Inspected) -> list[str]:
    """Returns warnings about the values of a label."""
    messages = []
    if label.distinct == 1:
        messages.append(
            f"{label.name!r} has only one label, {label.values[0]!r}: there is no choice."
        )
    elif label.distinct * 2 > len(label.values):
        messages.append(
            f"{label.name!r} is used as the label because of its name: it has {label.distinct} "
            f"labels in {len(label.values)} rows, too few rows to learn them."
        )
    if alike := spellings(label.counts):
        shown = "; ".join(", ".join(map(repr, values)) for values in alike[:_SHOWN])
        messages.append(f"labels that differ only by case or spaces are different labels: {shown}.")
    if label.is_number and label.distinct > 2:
        messages.append(
            f"{label.name!r} has {label.distinct} whole numbers, which are used as labels; "
            '"kind": "text2real" keeps their order.'
        )
    if "-" in label.counts and label.distinct > 2:
        rows = label.counts["-"]
        messages.append(f"{label.name!r} is '-' in {rows:,} rows, which is a label as the others.")
    return messages


def _one_hot(table: FileColumns, body: Body, kind: str) -> Iterator[Proposal]:
    """Yields the proposal of labels with a column of 0 and 1 each, if they are of the kind: one
    label in each row, or several.
    """
    found = [one for one in table if one.is_binary and one.filled > 0.9]
    columns = [one for one in found if not one.is_about_rows and one.name not in table.derived]
    rows = zip(*(one.rows for one in columns), strict=True)
    is_one = {sum(str(value).lower() in ON for value in row) for row in rows} == {1}
    is_sure = len(columns) >= _FEWEST_ONE_HOT
    if is_one is not (kind == "text2class") or len(columns) < 2 or (is_one and not is_sure):
        return
    score, verb, how = 1.0, "is", ": one of them is 1 in each row"
    if not is_one:
        score, verb, how = 0.95 if is_sure else 0.5, "are", ", each where its column is 1"
    names = [one.name for one in columns]
    doubt = f"{listed(map(repr, names))} are read as labels{how}."
    meaning = f"which of {len(names)} columns {verb} 1"
    target = {"column": names, "one_hot": True}
    yield body.proposal(kind, target, score, meaning, body.reasons, [doubt])


@register_proposer("text2multilabel")
def propose_several_labels(table: FileColumns) -> Iterator[Proposal]:
    """Proposes several labels for each text: lists, parts of cells, or columns of 0 and 1."""
    for body in bodies(table):
        for score, target, name, doubts in _label_sets(table):
            if name not in body.names:
                meaning = f"several labels of {name!r}"
                yield body.proposal("text2multilabel", target, score, meaning, (), doubts)
        yield from _one_hot(table, body, "text2multilabel")


def _label_sets(table: FileColumns) -> Iterator[tuple[float, Any, str, list[str]]]:
    """Yields the score, the column in JSON form, its name and warnings, for sets of labels."""
    of_texts = {base for name, base in table.derived.items() if table.columns[name].text > 0.5}
    for one in table:
        named = 0.05 * one.is_named(LABEL_NAMES)
        if one.name in of_texts:
            continue  # words
        if one.is_list or one.is_list_of_ids:
            lengths = {len(value) for value in one.values}
            repeats = any(len(set(value)) < len(value) for value in one.values[:200])
            is_set = len(one.vocabulary) * 2 <= max(4, one.vocabulary.total())
            varied = len(lengths) > 1 or lengths == {1}
            if varied and not repeats and is_set and not one.has_scheme:
                yield 0.9 + named, one.name, one.name, []
            continue
        mark, score = one.separator
        if mark and not one.has_scheme:
            how = "as a list" if mark == WRITTEN_LIST else f"with {mark!r} between them"
            message = f"{one.name!r} is read as several labels, {how}."
            column = {"column": one.name, "split": mark}
            yield min(1.0, score + named), column, one.name, [message]


@register_proposer("text2real")
def propose_numbers(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a number for each text."""
    for body in bodies(table):
        for number, fit in targets(table, "number"):
            score = min(1.0, fit + 0.05 * number.is_named(_NUMBER_NAMES))
            meaning = f"the number {number.name!r}, by regression"
            reasons = [f"{number.name!r} holds numbers"]
            yield body.proposal("text2real", number.name, score, meaning, reasons)


@register_proposer("multiturn2class")
def propose_dialogues(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a class for each list of utterances."""
    for turns in table:
        if not turns.is_list or sum(" " in one for value in turns.values for one in value) == 0:
            continue
        for label, fit in targets(table, "label"):
            doubts = [f"{turns.name!r} is used as the utterances of a dialogue, in order."]
            fields = {"inputs": turns.name, "targets": label.name}
            meaning = f"the label {label.name!r} of a dialogue"
            yield Proposal("multiturn2class", fields, 0.9 * fit, meaning, (), doubts)
