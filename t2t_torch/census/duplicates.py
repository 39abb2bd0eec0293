"""Rows that are there more than once, in a split and in two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t2t_torch.census.hashes import Hashes, combined

EXAMPLES = 2
"""Pairs of rows that are shown of each kind."""


@dataclass(frozen=True)
class Pair:
    """Two rows that have something in common: row numbers from 0, the later one second."""

    first: int
    second: int


@dataclass(frozen=True)
class Repeats:
    """What is there more than once in a split.

    Attributes:
      rows: that equal an earlier row in every feature.
      examples: such rows.
      most_times: how often the most frequent row is there.
      most_row: the first such row.
      inputs: rows whose inputs equal an earlier row's; None without inputs.
      input_examples: such rows that are no repeated rows, if there are any.
      contradictions: rows whose inputs are there with other targets too; None without inputs.
    """

    rows: int
    examples: tuple[Pair, ...]
    most_times: int
    most_row: int
    inputs: int | None
    input_examples: tuple[Pair, ...]
    contradictions: int | None


@dataclass(frozen=True)
class Overlap:
    """What one split has in common with another.

    Attributes:
      split: whose rows are counted.
      other: where they are looked for.
      rows: that equal a row there in every feature.
      examples: (row there, row here).
      inputs: rows whose inputs are there, whatever the targets; None without inputs.
      input_examples: such rows that are not there with the same targets, if there are any.
    """

    split: str
    other: str
    rows: int
    examples: tuple[Pair, ...]
    inputs: int | None
    input_examples: tuple[Pair, ...]


@dataclass(frozen=True)
class RowKeys:
    """The hashes of a split's rows, each [rows].

    Attributes:
      rows: of all features.
      inputs: of the inputs; None where there are none.
      targets: of the targets.
    """

    rows: Hashes
    inputs: Hashes | None
    targets: Hashes

    @classmethod
    def of(
        cls, inputs: Mapping[str, Hashes], targets: Mapping[str, Hashes], rest: Hashes
    ) -> RowKeys:
        """Joins the hashes of features; `rest` are those of features that are neither."""
        given = _joined(inputs)
        wanted = _joined(targets)
        zero = np.zeros_like(rest)
        both = combined(zero if given is None else given, zero if wanted is None else wanted)
        return cls(combined(both, rest), given, zero if wanted is None else wanted)


def _joined(hashes: Mapping[str, Hashes]) -> Hashes | None:
    joined: Hashes | None = None
    for values in hashes.values():
        joined = values if joined is None else combined(joined, values)
    return joined


class _Sorted:
    """Hashes in order; equal ones by row."""

    def __init__(self, hashes: Hashes) -> None:
        self.order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[self.order]
        self.again = np.zeros(len(hashes), bool)  # whether the one before is the same
        self.again[1:] = self.hashes[1:] == self.hashes[:-1]

    def groups(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The places where equal ones begin, and how many there are.  [groups] each."""
        starts = np.flatnonzero(~self.again)
        return starts, np.diff(starts, append=len(self.again))

    def repeated(self) -> npt.NDArray[np.int64]:
        """The rows that an earlier one equals, rising."""
        return np.sort(self.order[self.again])

    def find(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The first row of each of these hashes, -1 where there is none.  [len(hashes)]."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.order[places], -1)


def distinct(hashes: Hashes) -> int:
    """Returns how many different rows there are."""
    ordered = np.sort(hashes)
    return int(len(ordered) and 1 + np.count_nonzero(ordered[1:] != ordered[:-1]))


def repeats_of(keys: RowKeys) -> Repeats:
    """Counts what is more than once in a split of at least one row."""
    rows = _Sorted(keys.rows)
    starts, sizes = rows.groups()
    most = int(np.argmax(sizes))
    repeated = rows.repeated()
    examples = _pairs(rows, keys.rows, repeated[:EXAMPLES])
    most_row, most_times = int(rows.order[starts[most]]), int(sizes[most])
    del rows, starts, sizes
    if keys.inputs is None:
        return Repeats(len(repeated), examples, most_times, most_row, None, (), None)
    inputs = _Sorted(keys.inputs)
    again = inputs.repeated()
    # Equal rows need no second telling.
    others = np.setdiff1d(again, repeated, assume_unique=True)[:EXAMPLES]
    return Repeats(
        rows=len(repeated),
        examples=examples,
        most_times=most_times,
        most_row=most_row,
        inputs=len(again),
        input_examples=_pairs(inputs, keys.inputs, others),
        contradictions=_contradictions(inputs, keys.targets),
    )


def overlap_of(split: str, keys: RowKeys, other: str, there: RowKeys) -> Overlap:
    """Counts the rows of one split that are in another too."""
    found = _Sorted(there.rows).find(keys.rows)
    same = np.flatnonzero(found >= 0)
    examples = tuple(Pair(int(found[row]), int(row)) for row in same[:EXAMPLES])
    if keys.inputs is None or there.inputs is None:
        return Overlap(split, other, len(same), examples, None, ())
    given = _Sorted(there.inputs).find(keys.inputs)
    alike = np.flatnonzero(given >= 0)
    rest = np.setdiff1d(alike, same, assume_unique=True)[:EXAMPLES]
    input_examples = tuple(Pair(int(given[row]), int(row)) for row in rest)
    return Overlap(split, other, len(same), examples, len(alike), input_examples)


def _pairs(index: _Sorted, hashes: Hashes, rows: npt.NDArray[np.int64]) -> tuple[Pair, ...]:
    firsts = index.find(hashes[rows])
    return tuple(Pair(int(a), int(b)) for a, b in zip(firsts, rows, strict=True))


def _contradictions(inputs: _Sorted, targets: Hashes) -> int:
    """The rows of those groups of equal inputs whose targets are not all equal."""
    starts, sizes = inputs.groups()
    ordered = targets[inputs.order]
    lowest, highest = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)
    return int(sizes[lowest != highest].sum())
