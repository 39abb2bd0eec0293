"""How long rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_BINS = 60
_SKEWED = 12
"""Lengths are drawn on a logarithmic scale if the longest is so many times the median."""


@dataclass(frozen=True)
class Lengths:
    """Of the rows of a feature, in tokens (or words, where it has one entry a word).

    Attributes:
      total: of all rows.
      mean: of the rows.
      median: half of the rows are shorter, or as long.
      p95: the same of 95 % of the rows.
      shortest: of the rows.
      longest: of the rows.
      empty: rows without content: nothing, or nothing but the end.
    """

    total: int
    mean: float
    median: float
    p95: float
    shortest: int
    longest: int
    empty: int


@dataclass(frozen=True)
class Histogram:
    """Rows by a number; bin i holds `edges[i] <= x < edges[i + 1]`, the last its end too.

    Attributes:
      edges: [bins + 1], rising.
      counts: of rows, [bins], by split.
      logarithmic: whether the bins grow, and are to be drawn as wide as each other.
    """

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]
    logarithmic: bool = False


@dataclass(frozen=True)
class PairHistogram:
    """Rows by the lengths of two features.

    Attributes:
      names: of the two, (across, upwards).
      edges: of the bins, the same both ways, [bins + 1].
      counts: of rows, [bins across][bins upwards].
      beyond: rows of which one length is beyond the last edge.
      correlation: of the two lengths; None where one of them is always the same.
      ratio: tokens of the second for each of the first.
    """

    names: tuple[str, str]
    edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    beyond: int
    correlation: float | None
    ratio: float


def lengths_of(lengths: npt.NDArray[Any], content_from: int) -> Lengths:
    """Returns the figures of lengths, [rows] and at least one.

    Args:
      lengths: of the rows.
      content_from: the least length of a row that is not empty.
    """
    median, p95 = np.quantile(lengths, [0.5, 0.95], method="inverted_cdf")
    return Lengths(
        total=int(lengths.sum(dtype=np.int64)),
        mean=float(lengths.mean(dtype=np.float64)),
        median=float(median),
        p95=float(p95),
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        empty=int(np.count_nonzero(lengths < content_from)),
    )


def histogram_of(lengths: Mapping[str, npt.NDArray[Any]]) -> Histogram:
    """Counts the rows of each split in the same bins."""
    longest = max(int(values.max()) for values in lengths.values())
    shortest = min(int(values.min()) for values in lengths.values())
    middle = max(float(np.median(values)) for values in lengths.values())
    logarithmic = longest > _SKEWED * max(middle, 1) and shortest > 0
    if logarithmic:
        edges = np.unique(np.rint(np.geomspace(shortest, longest + 1, _BINS + 1)))
    else:
        step = max(1, -(-(longest + 1 - shortest) // _BINS))
        edges = np.arange(shortest, longest + 1 + step, step)
    counts = {name: _counted(values, edges) for name, values in lengths.items()}
    return Histogram(tuple(edges.tolist()), counts, logarithmic)


def number_histogram(values: Mapping[str, npt.NDArray[Any]]) -> Histogram:
    """Counts the finite numbers of each split in the same bins of the same width."""
    finite = {name: numbers[np.isfinite(numbers)] for name, numbers in values.items()}
    low = min((float(numbers.min()) for numbers in finite.values() if len(numbers)), default=0.0)
    high = max((float(numbers.max()) for numbers in finite.values() if len(numbers)), default=0.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    counts = {name: _counted(numbers, edges) for name, numbers in finite.items()}
    return Histogram(tuple(edges.tolist()), counts)


def pair_histogram(
    names: tuple[str, str], first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> PairHistogram:
    """Counts rows by two lengths; one row in two hundred may lie beyond the last edge."""
    high = int(np.quantile(np.maximum(first, second), 0.995, method="inverted_cdf")) + 1
    step = max(1, -(-high // _BINS))
    edges = np.arange(0, high + step, step)
    inside = (first < edges[-1]) & (second < edges[-1])
    counts, _, _ = np.histogram2d(first[inside], second[inside], bins=(edges, edges))
    varied = first.min() < first.max() and second.min() < second.max()
    return PairHistogram(
        names=names,
        edges=tuple(edges.tolist()),
        counts=tuple(map(tuple, counts.astype(int).tolist())),
        beyond=int(len(first) - np.count_nonzero(inside)),
        correlation=float(np.corrcoef(first, second)[0, 1]) if varied else None,
        ratio=float(second.sum(dtype=np.int64) / max(1, first.sum(dtype=np.int64))),
    )


def extremes(lengths: npt.NDArray[Any], count: int, *, longest: bool) -> Sequence[int]:
    """Returns the rows of the greatest or the least lengths, of equal ones the first."""
    keys = -lengths.astype(np.int64) if longest else lengths
    count = min(count, len(keys))
    limit = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < limit)
    rows = np.concatenate([below, np.flatnonzero(keys == limit)[: count - len(below)]])
    return [int(row) for row in rows[np.argsort(keys[rows], kind="stable")]]


def _counted(values: npt.NDArray[Any], edges: npt.NDArray[Any]) -> tuple[int, ...]:
    return tuple(int(count) for count in np.histogram(values, bins=edges)[0])
