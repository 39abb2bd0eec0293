"""Axes of plots: what they show, and which numbers stand beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TICKS = 5
_MAGNITUDES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from, unit, letter


def axis_range(values: Sequence[float]) -> tuple[float, float]:
    """Returns what an axis shows: all values, and a little room."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room if low < 0 or low - room > 0 else 0.0, high + room


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Returns some round numbers within a range; `whole`: none with a fraction."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(place * step, 12) for place in places]


def powers(low: float, high: float) -> list[float]:
    """Returns powers of ten within a range of logarithms, and numbers between if those are few."""
    for factors in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        between = [
            factor * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
            if low <= math.log10(factor * 10.0**power) <= high
        ]
        if len(between) >= 3:
            return between[:: math.ceil(len(between) / 7)]
    return ticks(10.0**low, 10.0**high)


def short(value: float) -> str:
    """Writes a number of an axis in a few characters."""
    for least, unit, letter in _MAGNITUDES:
        if abs(value) >= least:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"
