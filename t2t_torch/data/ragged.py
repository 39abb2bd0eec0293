"""Rows of different lengths in two flat arrays, as Arrow keeps its lists."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]

# Values whose places are found at a time: int64 places take twice the memory of int32 values, and
# what fits in the processor's cache is found faster.
_BLOCK_VALUES = 1 << 18


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """A list of rows: row i is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
      values: [total] of any fixed-width type.
      offsets: [rows + 1] int64, rising from 0 to total.
    """

    values: Values
    offsets: Offsets

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[Any]], dtype: npt.DTypeLike) -> Ragged:
        """Packs lists of numbers, or arrays of one dimension."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
        if rows and isinstance(rows[0], np.ndarray):
            return cls(np.concatenate(rows, dtype=dtype, casting="same_kind"), offsets)
        flat = itertools.chain.from_iterable(rows)
        return cls(np.fromiter(flat, dtype=dtype, count=int(offsets[-1])), offsets)

    @classmethod
    def from_lengths(cls, values: Values, lengths: npt.NDArray[np.integer[Any]]) -> Ragged:
        """Cuts values into rows of these lengths."""
        return cls(values, _offsets(lengths))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Puts at least one list of rows after another."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([part.lengths for part in parts])
        return cls.from_lengths(np.concatenate([part.values for part in parts]), lengths)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """[rows] how many values each row has."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """How much memory the two arrays take, in bytes."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def between(self, start: int, stop: int) -> Ragged:
        """The rows start, start + 1, ... stop - 1; the values are a view."""
        first, last = self.offsets[start], self.offsets[stop]
        return Ragged(self.values[first:last], self.offsets[start : stop + 1] - first)

    def take(self, order: npt.NDArray[np.integer[Any]]) -> Ragged:
        """The rows whose numbers `order` holds, in that order."""
        lengths = self.lengths[order]
        offsets = _offsets(lengths)
        # Value j of the result comes from its row's old start plus its place in the row.
        shift = self.offsets[order] - offsets[:-1]
        values = np.empty(offsets[-1], self.values.dtype)
        start = 0
        while start < len(order):
            limit = offsets[start] + _BLOCK_VALUES
            stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
            first, last = offsets[start], offsets[stop]
            places = np.arange(first, last)
            places += np.repeat(shift[start:stop], lengths[start:stop])
            np.take(self.values, places, out=values[first:last], mode="clip")
            start = stop
        return Ragged(values, offsets)


Rows: TypeAlias = Mapping[str, Ragged]
"""The same number of rows of every feature, by the feature's name."""


def value_dtype(arrow_type: str) -> np.dtype[Any]:
    """The numpy type of the values of an Arrow type `list<...>`; ValueError for any other."""
    if not (arrow_type.startswith("list<") and arrow_type.endswith(">")):
        raise ValueError(
            f"a feature is stored as a list of numbers, e.g. list<int32>: {arrow_type!r}"
        )
    return np.dtype(arrow_type[len("list<") : -1])


def num_rows(rows: Rows) -> int:
    """How many rows each feature has; 0 when there is no feature."""
    return len(next(iter(rows.values()), ()))


def nbytes(rows: Rows) -> int:
    """How much memory the rows take, in bytes."""
    return sum(ragged.nbytes for ragged in rows.values())


def between(rows: Rows, start: int, stop: int) -> Rows:
    """`Ragged.between` of every feature."""
    return {name: ragged.between(start, stop) for name, ragged in rows.items()}


def take(rows: Rows, order: npt.NDArray[np.integer[Any]]) -> Rows:
    """`Ragged.take` of every feature."""
    return {name: ragged.take(order) for name, ragged in rows.items()}


def concatenate(parts: Sequence[Rows]) -> Rows:
    """`Ragged.concatenate` of every feature."""
    return {name: Ragged.concatenate([part[name] for part in parts]) for name in parts[0]}


def _offsets(lengths: npt.NDArray[np.integer[Any]]) -> Offsets:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
