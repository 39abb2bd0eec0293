"""Curves over steps, as SVG that takes its colours from the page it stands in.

Written out here and not by matplotlib, which draws the plots of a census: every run has such a
page, also where matplotlib is missing, and it is written again while the run goes on, in
milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from t2t_torch.report.excerpt import visible
from t2t_torch.report.section import number

Point = tuple[float, float]

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 448, 24, 196
_MOST_POINTS = 300  # of a curve: finer than the plot's pixels can show
_FEW = 60  # points that are each drawn as a dot, which says its value under the mouse
_TICKS = 5
_COLOURS = 3  # of the page's style
_DASHES = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 3"')
_MAGNITUDES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from, unit, letter


@dataclass(frozen=True)
class Curve:
    """A line of a chart.

    Attributes:
      name: in the legend.
      points: (step, value), by step; a value that is not finite is a gap.
    """

    name: str
    points: Sequence[Point]


def chart(
    curves: Sequence[Curve], *, logarithmic: bool = False, marks: Sequence[float] = ()
) -> str:
    """Returns an `<svg>` element.

    Args:
      curves: one or more, of which at least one has a finite value.
      logarithmic: by powers of ten, if no value is 0 or less.
      marks: steps at which a dashed line stands.
    """
    finite = [point for curve in curves for point in curve.points if math.isfinite(point[1])]
    values = [value for _, value in finite]
    logarithmic = logarithmic and min(values) > 0
    low, high = _range([math.log10(value) for value in values] if logarithmic else values)
    first, last = min(step for step, _ in finite), max(step for step, _ in finite)
    first, last = (first - 1, last + 1) if first == last else (first, last)

    def x(step: float) -> float:
        return _LEFT + (step - first) / (last - first) * (_RIGHT - _LEFT)

    def y(value: float) -> float:
        height = math.log10(value) if logarithmic else value
        return _BOTTOM - (height - low) / (high - low) * (_BOTTOM - _TOP)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true" font-size="11">']
    for tick in _powers(low, high) if logarithmic else _ticks(low, high):
        parts.append(_horizontal(y(tick), _short(tick)))
    for tick in _ticks(first, last, whole=True):
        told = f'<text x="{x(tick):.1f}" y="{_BOTTOM + 15}" text-anchor="middle"'
        parts.append(f'{told} fill="var(--soft)">{_short(tick)}</text>')
    middle = (_LEFT + _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_BOTTOM + 30}" text-anchor="middle"')
    parts.append('fill="var(--soft)">step</text>')
    for mark in marks:
        if first <= mark <= last:
            parts.append(
                f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{_TOP}" y2="{_BOTTOM}" '
                'stroke="var(--soft)" stroke-dasharray="1 3"/>'
            )
    for place, curve in enumerate(curves):
        parts += _drawn(curve, place, x, y)
    parts.append(_legend(curves))
    return "\n".join([*parts, "</svg>"])


def downsampled(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Returns about `most` points in which the least and the greatest of each stretch are left."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(2 * len(points) / most)
    kept: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        finite = [point for point in part if math.isfinite(point[1])]
        if len(finite) < len(part):
            kept.append((part[0][0], math.nan))  # the gap must not close
        if finite:
            least = min(finite, key=lambda point: point[1])
            greatest = max(finite, key=lambda point: point[1])
            kept += sorted({least, greatest})
    return [*kept, points[-1]] if kept[-1] != points[-1] else kept


def _drawn(
    curve: Curve, place: int, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    """Yields a curve's lines, and its dots if they are few."""
    color = f"var(--series{place % _COLOURS})"
    dash = _DASHES[place // _COLOURS % len(_DASHES)]
    line: list[str] = []
    for step, value in [*downsampled(curve.points), (math.inf, math.nan)]:
        if math.isfinite(value):
            line.append(f"{x(step):.1f},{y(value):.1f}")
        elif line:
            points = " ".join(line)
            yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"'
            yield f'stroke-linejoin="round"{dash}/>'
            line = []
    finite = [point for point in curve.points if math.isfinite(point[1])]
    dots = finite if len(finite) <= _FEW else finite[-1:]
    for step, value in dots:
        told = f"{_shown(curve.name)} {value:.6g} at step {step:,.0f}"
        yield f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="2.4" fill="{color}">'
        yield f"<title>{told}</title></circle>"


def _legend(curves: Sequence[Curve]) -> str:
    """Returns the curves' names and their last values, in one line above the plot."""
    parts = []
    for place, curve in enumerate(curves):
        last = next((v for _, v in reversed(curve.points) if math.isfinite(v)), math.nan)
        color = f"var(--series{place % _COLOURS})"
        told = f"{_shown(curve.name)} {number(last)}"
        parts.append(f'<tspan fill="{color}" dx="{10 if place else 0}">● </tspan>{told}')
    return f'<text x="{_LEFT}" y="13" fill="var(--ink)">{"".join(parts)}</text>'


def _horizontal(height: float, told: str) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{height:.1f}" y2="{height:.1f}" '
        f'stroke="var(--line)"/><text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end" '
        f'fill="var(--soft)">{told}</text>'
    )


def _range(values: Sequence[float]) -> Point:
    """Returns what an axis shows: all values, and a little room."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room if low < 0 or low - room > 0 else 0.0, high + room


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Returns about `_TICKS` round numbers within a range."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(place * step, 12) for place in places]


def _powers(low: float, high: float) -> list[float]:
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
    return _ticks(10.0**low, 10.0**high)


def _short(value: float) -> str:
    """Writes a number of an axis in a few characters."""
    for least, unit, letter in _MAGNITUDES:
        if abs(value) >= least:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"


def _shown(text: str) -> str:
    return escape(visible(text))
