"""Means and bounds of numbers: of values, of pixels, of places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from t2t_torch.census.column import Column
from t2t_torch.data.shards import Shards
from t2t_torch.features import NO_SPAN, Feature, Features, Real, WordReal

_LARGE = 100.0  # a layer that is drawn for numbers near 1 has its first outputs as many times off
_FAR = 100.0  # standard deviations: no sample of a normal distribution reaches 10


@dataclass(frozen=True)
class Numbers:
    """Of numbers of one kind, such as one place of a vector or one channel of pictures."""

    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True)
class Spans:
    """Of parts of a text.

    Attributes:
      without: rows that have none.
      mean_words: of a part.
      most_words: of a part.
    """

    without: int
    mean_words: float
    most_words: int


def numbers_of(column: Column, width: int) -> tuple[Numbers, ...]:
    """Returns the figures of each of `width` numbers that rows consist of, again and again.

    For pictures, `width` is the number of channels.  Of numbers that are infinite, or none, as the
    shards of older versions may hold, so are the figures.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return _figures(column, width)


def _figures(column: Column, width: int) -> tuple[Numbers, ...]:
    sums, squares, count = np.zeros(width), np.zeros(width), 0
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    shift: np.ndarray | None = None  # the variance of large numbers would drown in rounding
    for _, rows in column.blocks():
        table = rows.values.reshape(-1, width).astype(np.float64)
        if not len(table):
            continue
        shift = table[0] if shift is None else shift
        sums += (table - shift).sum(axis=0)
        squares += np.square(table - shift).sum(axis=0)
        low, high = np.minimum(low, table.min(axis=0)), np.maximum(high, table.max(axis=0))
        count += len(table)
    if shift is None:
        return ()
    means = sums / count
    stds = np.sqrt(np.maximum(squares / count - np.square(means), 0))
    return tuple(
        Numbers(*map(float, place)) for place in zip(means + shift, stds, low, high, strict=True)
    )


def raw(feature: Feature, numbers: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    """Returns the figures as they were before the numbers were standardized."""
    if not isinstance(feature, Real) or not feature.mean:
        return numbers
    return tuple(
        Numbers(x.mean * std + mean, x.std * std, x.low * std + mean, x.high * std + mean)
        for x, mean, std in zip(numbers, feature.mean, feature.std, strict=True)
    )


def spans_of(column: Column) -> Spans:
    """Returns the figures of (first, last) places."""
    without = words = most = 0
    for _, rows in column.blocks():
        places = rows.values.reshape(-1, 2).astype(np.int64)
        there = places[places[:, 0] != NO_SPAN]
        widths = there[:, 1] - there[:, 0] + 1
        without += len(places) - len(there)
        words += int(widths.sum())
        most = max(most, int(widths.max(initial=0)))
    return Spans(without, words / max(1, len(column) - without), most)


def scale_warnings(features: Features, shards: Shards) -> Iterator[str]:
    """Yields a sentence for each place of numbers whose scale makes learning hard.

    Args:
      features: of the data.
      shards: of its training split.
    """
    for name, feature in {**features.inputs, **features.targets}.items():
        if not isinstance(feature, Real | WordReal):
            continue
        figures = numbers_of(Column(shards.column(features.columns[name])), feature.size)
        for place, (stored, own) in enumerate(zip(figures, raw(feature, figures), strict=True)):
            which = f"number {place + 1} of {name!r}" if feature.size > 1 else f"{name!r}"
            size = math.hypot(stored.mean, stored.std)
            if size > _LARGE or 0 < size < 1 / _LARGE:
                yield (
                    f"{which} is learned as it is: mean {own.mean:.4g}, standard deviation "
                    f"{own.std:.4g}. Scale it so that both are near 1."
                )
                continue
            far = max(stored.high - stored.mean, stored.mean - stored.low)
            if stored.std and far > _FAR * stored.std:
                yield (
                    f"{which} goes from {own.low:.4g} to {own.high:.4g}: up to "
                    f"{far / stored.std:,.0f} standard deviations from its mean, {own.mean:.4g}. "
                    "Look at its largest values, or take logarithms."
                )
