"""Rows of the same lengths."""

from __future__ import annotations

import dataclasses
import functools
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
        longest = functools.reduce(np.maximum, lengths.values())
        of_row, found = _number(longest, int(longest.max()) + 1)
        columns = [found]
        for length in lengths.values():
            span = int(length.max()) + 1
            size = len(columns[0]) * span
            key = of_row.astype(np.int32 if size < 2**31 else np.int64)
            key *= span
            key += length
            of_row, found = _number(key, size)
            columns = [*(column[found // span] for column in columns), found % span]
        counts = np.bincount(of_row)
        return cls(of_row, counts, columns[0], dict(zip(lengths, columns[1:], strict=True)))


def _number(
    keys: npt.NDArray[Any], size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Returns the place of each key among the different ones, and those in rising order.

    Args:
      keys: [N], from 0 to `size - 1`.
      size: how many there could be.
    """
    if size > _LARGEST_TABLE:
        values, places = np.unique(keys, return_inverse=True)
        return places.reshape(-1).astype(np.int32), values.astype(np.int64)
    there = np.zeros(size, np.bool_)
    there[keys] = True
    places = np.cumsum(there, dtype=np.int32) - 1
    return places[keys], np.flatnonzero(there)
