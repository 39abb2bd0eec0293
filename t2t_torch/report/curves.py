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

from t2t_torch.report.axis import axis_range, powers, short, ticks
from t2t_torch.report.excerpt import visible
from t2t_torch.report.section import number

Point = tuple[float, float]

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 448, 24, 196
_MOST_POINTS = 300  # of a curve: finer than the plot's pixels can show
_FEW = 60  # points that are each drawn as a dot, which says its value under the mouse
_COLOURS = 3  # of the page's style
_DASHES = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 3"')


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
    low, high = axis_range([math.log10(value) for value in values] if logarithmic else values)
    first, last = min(step for step, _ in finite), max(step for step, _ in finite)
    first, last = (first - 1, last + 1) if first == last else (first, last)

    def x(step: float) -> float:
        return _LEFT + (step - first) / (last - first) * (_RIGHT - _LEFT)

    def y(value: float) -> float:
        height = math.log10(value) if logarithmic else value
        return _BOTTOM - (height - low) / (high - low) * (_BOTTOM - _TOP)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true" font-size="11">']
    for tick in powers(low, high) if logarithmic else ticks(low, high):
        parts.append(_horizontal(y(tick), short(tick)))
    for tick in ticks(first, last, whole=True):
        told = f'<text x="{x(tick):.1f}" y="{_BOTTOM + 15}" text-anchor="middle"'
        parts.append(f'{told} fill="var(--soft)">{short(tick)}</text>')
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


def _shown(text: str) -> str:
    return escape(visible(text))
