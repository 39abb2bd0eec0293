"""Proposals of problems for a table, and their ranking.

A proposer is a registered function of the columns of a file that yields scored proposals:

    @register_proposer("text2class")
    def propose_classes(table: FileColumns) -> Iterator[Proposal]: ...

Its score says how well the columns fit their roles, from 0 to 1.  `rank` multiplies it by how much
of the information of the table the proposal uses: a language model of the texts of a table with
labels fits, but leaves the labels unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from t2t_torch import registry
from t2t_torch.declaration.columns import FileColumns

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
        used: set[str] = set()
        for column in self.fields.values():
            named = column["column"] if isinstance(column, Mapping) else column
            used |= set(_listed(named))
        return used

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
            named = column["column"] if isinstance(column, Mapping) else column
            used = [names[-1] if name == "-1" else name for name in _listed(named)]
            if rows := [table.columns[name].rows for name in used if name in table.columns]:
                fields.append([any(v is not None for v in row) for row in zip(*rows, strict=True)])
        return sum(map(all, zip(*fields, strict=True))) if fields else table.rows


def _listed(named: Any) -> list[str]:
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


def _values(named: Any, table: FileColumns) -> str:
    """Returns a column in JSON form that is equal for columns with the same values."""
    split = named if isinstance(named, Mapping) else {"column": named}
    names = [table.twins.get(name, name) for name in _listed(split["column"])]
    return str({**split, "column": names})


def margin(ranked: Sequence[Proposal]) -> float:
    """Returns the difference of the best two scores; 1 if there is one proposal.

    A proposal that only uses fewer of the best one's columns is not counted.
    """
    rivals = (one for one in ranked[1:] if not one.columns < ranked[0].columns)
    return ranked[0].score - next((one.score for one in rivals), ranked[0].score - 1)
