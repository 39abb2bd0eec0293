"""Rows of the same lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_LARGEST_TABLE = 1 << 25  # keys below it are numbered by a table, without sorting


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Rows that agree in every length, grouped.

    Groups are numbered by the longest of their lengths, then by each length in the features' order.

    Attributes:
      of_row: the group of each row, [N] int32.
      counts: rows in each group, [G].
      longest: of each group, [G].
      lengths: for each feature the length of each group, [G].
    """

    of_row: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    longest: npt.NDArray[np.int64]
    lengths: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, lengths: Mapping[str, npt.NDArray[Any]]) -> Groups:
        """Groups rows.

        Args:
          lengths: for each feature the length of each row, [N] from 0 on; N is at least 1.
        """
        keys = _Keys()
        for length in lengths.values():
            keys.append(length)
        columns = keys.columns()
        longest = np.maximum.reduce(columns)
        order = np.lexsort((*reversed(columns), longest))
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order))
        of_row = keys.look_up(numbers)
        sorted_columns = [column[order] for column in columns]
        found = dict(zip(lengths, sorted_columns, strict=True))
        return cls(of_row, np.bincount(of_row), longest[order], found)


class _Keys:
    """The lengths of each row as one number, the first length having most weight."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[Any] | None = None
        self._size = 1  # keys are below it
        self._spans: list[int] = []  # of the lengths that are in the keys as they are
        self._dense: list[npt.NDArray[Any]] = []  # the others, by what is in the keys for them

    def append(self, length: npt.NDArray[Any]) -> None:
        """Takes one more length of every row into the keys."""
        span = int(length.max()) + 1
        if self._keys is not None and self._size * span > _LARGEST_TABLE:
            self._dense, values = self.columns(), self._values
            self._keys = self.look_up(np.arange(len(values), dtype=np.int32))
            self._size, self._spans = len(values), []
        dtype = np.int32 if self._size * span < 2**31 else np.int64
        if self._keys is None:
            self._keys = length.astype(dtype)
        else:
            self._keys = self._keys.astype(dtype, copy=False) * dtype(span)
            self._keys += length
        self._size *= span
        self._spans.append(span)

    def columns(self) -> list[npt.NDArray[Any]]:
        """Returns each length of the different keys, those in rising order."""
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            self._values = np.unique(self._keys)
        else:
            there = np.zeros(self._size, np.bool_)
            there[self._keys] = True
            self._values = np.flatnonzero(there)
        left = self._values
        own: list[npt.NDArray[Any]] = []
        for span in reversed(self._spans):
            own.insert(0, left % span)
            left = left // span
        return [*(column[left] for column in self._dense), *own]

    def look_up(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns for every row the number that is given for its key; after `columns`.

        Args:
          numbers: of the different keys, those in rising order.
        """
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            return numbers[np.searchsorted(self._values, self._keys)]
        table = np.zeros(self._size, np.int32)
        table[self._values] = numbers
        found: npt.NDArray[np.int32] = table[self._keys]
        return found
