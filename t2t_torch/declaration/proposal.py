"""Proposals of problems for a table, their texts, and their ranking.

A proposer is a registered function of the columns of a file that yields scored proposals:

    @register_proposer("text2class")
    def propose_classes(table: FileColumns) -> Iterator[Proposal]: ...

Its score says how well the columns fit their roles, from 0 to 1.  `rank` multiplies it by how much
of the information of the table the proposal uses: a language model of the texts of a table with
labels fits, but leaves the labels unused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from t2t_torch import registry
from t2t_torch.declaration.columns import LABEL_NAMES, FileColumns, Inspected, overlap
from t2t_torch.errors import listed

CLOSE = 0.05
"""Difference of two scores below which neither proposal is preferred."""

_COVERED = 0.4  # part of a score that depends on the information that is used
_LEAST = 0.12  # score below which nothing is proposed


@dataclass(frozen=True)
class Proposal:
    """A problem that may be learnt from a table.

    Attributes:
      kind: kind of problem.
      fields: by field of a sample, its column in JSON form.
      score: how well the columns fit their roles, from 0 to 1.
      meaning: what is learnt, as a phrase.
      reasons: facts that speak for it, as phrases.
      doubts: warnings about uncertain results, as sentences.
      more: other keys of the declaration.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    score: float = 1.0
    meaning: str = ""
    reasons: Sequence[str] = ()
    doubts: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> set[str]:
        """The used columns."""
        return {name for column in self.fields.values() for name in _names(column)}

    @property
    def explained(self) -> str:
        """The meaning, with the reasons."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return f"{self.meaning or self.kind}{reasons}"

    def lacks(self, table: FileColumns) -> bool:
        """Returns whether a column that is the only one of a field is empty in some rows."""
        alone = [column for column in self.fields.values() if isinstance(column, str)]
        return any(table.columns[name].empty for name in alone if name in table.columns)

    def filled_rows(self, table: FileColumns) -> int:
        """Returns the number of rows in which each field has a value."""
        names = list(table.columns)
        fields = []
        for column in self.fields.values():
            used = [names[-1] if name == "-1" else name for name in _names(column)]
            if rows := [table.columns[name].rows for name in used if name in table.columns]:
                fields.append([any(v is not None for v in row) for row in zip(*rows, strict=True)])
        return sum(map(all, zip(*fields, strict=True))) if fields else table.rows


def _names(column: Any) -> list[str]:
    """Returns the names of a field's columns in JSON form."""
    named = column["column"] if isinstance(column, Mapping) else column
    return named if isinstance(named, list) else [named]


def propose(table: FileColumns) -> list[Proposal]:
    """Returns the proposals of all proposers, the best first."""
    found = (
        one for name in registry.list_names("proposer") for one in registry.proposer(name)(table)
    )
    return rank(found, table)


def rank(proposals: Iterable[Proposal], table: FileColumns) -> list[Proposal]:
    """Returns proposals with their final scores, the best first; those of equal values once.

    Args:
      proposals: with the scores of their proposers.
      table: the columns.
    """
    information = {one.name: table.information(one) for one in table}
    total = sum(information.values())
    ranked: dict[str, Proposal] = {}
    for one in proposals:
        used = one.columns | {list(table.columns)[-1]} if "-1" in one.columns else one.columns
        used |= {name for name in information if name.startswith(tuple(f"{u}." for u in used))}
        covered = sum(information.get(name, 0.0) for name in used) / total if total else 1.0
        score = one.score * (1 - _COVERED + _COVERED * min(1.0, covered))
        values = sorted((field, _values(named, table)) for field, named in one.fields.items())
        key = f"{one.kind} {values}"
        if score >= _LEAST and (key not in ranked or ranked[key].score < score):
            ranked[key] = replace(one, score=round(score, 4))
    return sorted(ranked.values(), key=lambda one: -one.score)


def _values(column: Any, table: FileColumns) -> str:
    """Returns a column in JSON form that is equal for columns with the same values."""
    names = [table.twins.get(name, name) for name in _names(column)]
    return str({**(column if isinstance(column, Mapping) else {}), "column": names})


def margin(ranked: Sequence[Proposal]) -> float:
    """Returns the difference of the best two scores; 1 if there is one proposal.

    A proposal that only uses fewer of the best one's columns is not counted.
    """
    rivals = (one for one in ranked[1:] if not one.columns < ranked[0].columns)
    return ranked[0].score - next((one.score for one in rivals), ranked[0].score - 1)


TEXT_NAMES = "text body sentence content message utterance review comment tweet post inputs input"
_HEADING_NAMES = "title subject headline heading summary"
_QUERY_NAMES = "question query claim"
_MAX_TEXTS = 6
_REPEATED = 0.6  # fraction of distinct values up to which a text is rather a query than a heading


class Body(NamedTuple):
    """The text of a sample.

    Attributes:
      column: the column, or a list of columns that are joined.
      score: how well it fits.
      reasons: facts that speak for it, as phrases.
      doubts: warnings, as sentences.
    """

    column: Any
    score: float
    reasons: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return _names(self.column)

    def proposal(
        self,
        kind: str,
        target: Any,
        fit: float,
        meaning: str,
        reasons: Sequence[str] = (),
        doubts: Sequence[str] = (),
    ) -> Proposal:
        """Returns the proposal to learn a column, in JSON form, from the text."""
        fields = {"inputs": self.column, "targets": target}
        return Proposal(kind, fields, self.score * fit, meaning, reasons, [*self.doubts, *doubts])


def texts_of(table: FileColumns) -> list[Inspected]:
    """Returns the columns of texts in the order of the file; metadata only if there is no other."""
    every = [one for one in table if one.text >= 0.2]
    found = [one for one in every if one.name not in table.derived] or every
    kept = [one for one in found if not one.is_about_rows and one.boilerplate <= 0.5]
    found = kept or found
    best = max((one.text for one in found), default=0.0)
    named = [one for one in found if not (one.is_named(LABEL_NAMES) and one.label > 0.5)]
    texts = [one for one in named or found if one.text > 0.4 * best]
    if len(texts) <= _MAX_TEXTS:
        return texts
    likely = sorted(texts, key=lambda one: -one.text)[:_MAX_TEXTS]
    return [one for one in texts if one in likely]


def bodies(table: FileColumns) -> Iterator[Body]:
    """Yields the texts that may be classified: each column, and two or three joined."""
    texts = texts_of(table)
    for one in texts:
        others = [repr(other.name) for other in texts if other is not one]
        doubts = []
        if others:
            doubts.append(
                f"{one.name!r} is used as the text; {listed(others)} could be joined to it with a "
                "list."
            )
        longest = max(texts, key=lambda other: other.mean_words)
        score = one.text * (0.9 if one is longest else 0.8) + 0.05 * one.is_named(TEXT_NAMES)
        reasons = [f"{one.name!r} holds texts of {one.mean_words:.0f} words"]
        yield Body(one.name, min(1.0, score), reasons, doubts)
    if len(texts) == 2:
        headings = [one for one in texts if is_heading(one, texts)]
        ordered = headings + [one for one in texts if one not in headings]
        names = [one.name for one in (ordered if len(headings) == 1 else texts)]
        message = f"{names[0]!r} and {names[1]!r} are joined to one text."
        score = min(one.text for one in texts) * (0.97 if len(headings) == 1 else 0.75)
        yield Body(names, score, [f"{names[0]!r} is a heading"] if headings else [], [message])


def is_heading(one: Inspected, texts: Sequence[Inspected]) -> bool:
    """Returns whether a text is the heading of another, by its name or its length."""
    if one.is_named(_HEADING_NAMES):
        return True
    others = [other for other in texts if other is not one]
    is_query = one.is_named(_QUERY_NAMES) or repeats(one)
    if is_query or any(are_alike(one, other) for other in others):
        return False
    return one.mean_words * 3 < min((other.mean_words for other in others), default=0.0)


def repeats(one: Inspected) -> bool:
    """Returns whether the values repeat as queries do."""
    return one.distinct <= _REPEATED * len(one.values)


def pairs(table: FileColumns) -> Iterator[tuple[Inspected, Inspected, float]]:
    """Yields two texts that may be compared, and how well they fit as a pair.

    The texts of a pair are alike in name and length, and share more words than texts of other rows;
    of three or more with such names, as those of options, none are a pair.
    """
    texts = texts_of(table)
    groups = [[one for one in texts if are_alike(first, one)] for first in texts]
    texts = [one for one, group in zip(texts, groups, strict=True) if len(group) < 3]
    for n, first in enumerate(texts):
        for second in texts[n + 1 :]:
            score = min(first.text, second.text) * 0.75
            if are_alike(first, second):
                score += 0.2
            elif first.is_named(_QUERY_NAMES) or second.is_named(_QUERY_NAMES):
                score += 0.15
            elif is_heading(first, [first, second]) or is_heading(second, [first, second]):
                score -= 0.2
            else:
                longer, shorter = sorted((first.mean_words, second.mean_words), reverse=True)
                score += 0.1 * (overlap(first, second) > 0.02) + 0.06 * (longer < 2 * shorter)
            yield first, second, max(0.0, min(1.0, score))


def are_alike(one: Inspected, other: Inspected) -> bool:
    """Returns whether two names are those of a pair: sentence1 and sentence2, text_a and text_b."""
    if {one.name.lower(), other.name.lower()} == {"premise", "hypothesis"}:
        return True
    names = [re.sub(r"[\W_\d]+", " ", n.name.lower()).strip() for n in (one, other)]
    stems = [re.sub(r"[a-d]$|\b[a-d]\b", "", name) for name in names]
    return stems[0] == stems[1] != ""


def count(number: int, what: str) -> str:
    """Returns a number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
