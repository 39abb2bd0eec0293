"""Rows as 64-bit numbers, so that equal ones are found by sorting."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.census.column import Column
from t2t_torch.data.ragged import Ragged

Hashes: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_POSITION_BITS = np.uint64(32)  # a value has 32 bits at most, so (position, value) has 64


def row_hashes(column: Column) -> Hashes:
    """Returns a hash of each row's numbers, [rows].

    Each (position, number) is mixed by itself and the results are summed, which, unlike
    a polynomial modulo 2**64, has no rows that are alike by their form.  Of ten million different
    rows any two have the same hash with a probability of 3 in a million.
    """
    hashes = np.empty(len(column), np.uint64)
    for first, rows in column.blocks():
        hashes[first : first + len(rows)] = _block_hashes(rows)
    return hashes


def combined(first: Hashes, second: Hashes) -> Hashes:
    """Returns hashes of pairs; (a, b) and (b, a) differ."""
    return _mixed(_mixed(first) + second)


def _block_hashes(rows: Ragged) -> Hashes:
    lengths = rows.lengths
    starts = rows.offsets[:-1]
    values = np.ascontiguousarray(rows.values)
    numbers = values.view(np.dtype(f"u{values.dtype.itemsize}")).astype(np.uint64)
    positions = np.arange(len(values), dtype=np.int64) - np.repeat(starts, lengths)
    numbers |= positions.astype(np.uint64) << _POSITION_BITS
    filled = lengths > 0  # reduceat gives an empty row the next one's first number
    sums = np.zeros(len(rows), np.uint64)
    if filled.any():
        sums[filled] = np.add.reduceat(_mixed(numbers), starts[filled])
    return _mixed(sums + lengths.astype(np.uint64))


def _mixed(numbers: Hashes) -> Hashes:
    """The output function of SplitMix64: Steele, Lea and Flood 2014, figure 15."""
    mixed: Hashes = numbers + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
