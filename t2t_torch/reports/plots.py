"""Plots of reports: statistics, curves with axes, heat maps.

Curves over steps are SVG that takes its colours from the page it stands in.  They are written out
here and not by matplotlib, which draws the plots of data: every run has such a page, also where
matplotlib is missing, and it is written again during the run, in milliseconds.
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import UsageError, install_extra
from t2t_torch.reports.column_statistics import BucketTable, Histogram, PairHistogram
from t2t_torch.reports.section import cut, escaped, number, visible, width
from t2t_torch.reports.statistics import DatasetStatistics
from t2t_torch.search_space import AnyValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INSTALL = f"There are no plots: matplotlib is missing.  {install_extra('plots')}"
"""What is said where they cannot be drawn."""

# What is drawn in these colours gets those of `page.STYLE`.
INK, LINE = "#0a0b0c", "#0d0e0f"
SERIES = ("#1a0b0c", "#2a0b0c", "#3a0b0c", "#4a0b0c", "#5a0b0c")
_VARIABLES = {
    INK: "var(--soft)",
    LINE: "var(--line)",
    **{color: f"var(--series{place})" for place, color in enumerate(SERIES)},
}
_SPECKLE = (37, 99, 190)  # of pictures, which have colours of their own: seen on dark and light
_SIZE = (4.6, 2.4)  # inches
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "t2t",  # the same figures, the same bytes
    "text.parse_math": False,
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


def can_draw() -> bool:
    """Returns whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(statistics: DatasetStatistics) -> dict[str, str]:
    """Returns an `<svg>` element for each plot, by the names of `section.Plot`."""
    drawn: dict[str, str] = {}
    for feature in statistics.features:
        if feature.histogram is not None:
            by = f"length of {feature.name}" if feature.shape[:1] == (None,) else feature.name
            name = f"histogram-{feature.name}"
            drawn[name] = _svg(_histogram(feature.histogram, by), len(drawn))
    for pair in statistics.pairs:
        size = (3.4, 3.1)
        drawn[f"pair-{pair.names[1]}"] = _svg(_pair(pair), len(drawn), size=size)
    if statistics.buckets is not None:
        bars = _buckets(statistics.buckets)
        drawn["buckets"] = _svg(bars, len(drawn), panels=2, size=(4.6, 3.4))
    return drawn


def _histogram(histogram: Histogram, by: str) -> Callable[[list[Axes]], None]:
    def paint(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, (split, counts) in enumerate(histogram.counts.items()):
            shares = np.asarray(counts) / max(1, sum(counts))
            color = SERIES[place % len(SERIES)]
            if place == 0:
                ax.stairs(shares, histogram.edges, fill=True, color=color, alpha=0.25)
            ax.stairs(shares, histogram.edges, color=color, linewidth=1.4, label=split)
        if histogram.logarithmic:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.xaxis.set_minor_formatter("")
        ax.margins(x=0.01)
        ax.yaxis.set_major_formatter(_percent)
        ax.set_xlabel(by)
        ax.set_ylabel("share of rows")
        ax.legend()

    return paint


def _pair(pair: PairHistogram) -> Callable[[list[Axes]], None]:
    def paint(axes: list[Axes]) -> None:
        (ax,) = axes
        counts = np.asarray(pair.counts, float).T  # rows upwards
        strength = np.log1p(counts) / max(1e-9, float(np.log1p(counts.max())))
        pixels = np.zeros((*counts.shape, 4), np.uint8)
        pixels[..., :3] = _SPECKLE
        pixels[..., 3] = np.where(counts > 0, 40 + 215 * strength, 0)
        end = pair.edges[-1]
        extent = (0, end, 0, end)
        ax.grid(visible=False)
        ax.imshow(pixels, origin="lower", extent=extent, interpolation="none")
        ax.plot([0, end], [0, end], color=INK, linewidth=0.7, linestyle=(0, (4, 4)))
        ax.set_xlabel(f"length of {pair.names[0]}")
        ax.set_ylabel(f"length of {pair.names[1]}")

    return paint


def _buckets(table: BucketTable) -> Callable[[list[Axes]], None]:
    def paint(axes: list[Axes]) -> None:
        rows, padding = axes
        places = np.arange(len(table.buckets))
        names = [str(one.high) if one.high is not None else "more" for one in table.buckets]
        rows.bar(places, [one.rows for one in table.buckets], color=SERIES[0], width=0.8)
        rows.yaxis.set_major_formatter("{x:,.0f}")
        rows.set_ylabel("rows")
        padding.bar(places, [one.padding for one in table.buckets], color=SERIES[1], width=0.8)
        padding.axhline(table.padding, color=INK, linewidth=0.8, linestyle=(0, (4, 4)))
        padding.yaxis.set_major_formatter(_percent)
        padding.set_ylabel("padding")
        padding.set_xlabel("longest length of the bucket")
        step = max(1, len(places) // 12)
        padding.set_xticks(places[::step], names[::step])
        rows.tick_params(labelbottom=False)

    return paint


def _percent(share: float, _: float) -> str:
    return f"{100 * share:g} %" if share else "0"


def _svg(
    paint: Callable[[list[Axes]], None],
    number: int,
    *,
    panels: int = 1,
    size: tuple[float, float] = _SIZE,
) -> str:
    """Draws a figure; `number` keeps its ids apart from those of the page's others."""
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    settings: Any = _SETTINGS
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a browser has them
        figure = Figure(figsize=size, layout="constrained")
        paint([*figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]])
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(file.getvalue(), number, _VARIABLES)


def _embedded(svg: str, number: int, colors: Mapping[str, str]) -> str:
    """Makes a file an element of a page: ids of its own, colours of the page, no fixed size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>plot{number}-", svg)
    svg = re.sub(r'^<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg)
    svg = re.sub(r'^<svg ([^>]*?)height="[^"]*"', r'<svg aria-hidden="true" \1', svg)
    for color, variable in colors.items():
        svg = svg.replace(color, variable)
    return svg.strip()


_TICKS = 5
_MAGNITUDES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from, unit, letter
_LARGEST = 1e13  # with a letter


def axis_range(values: Sequence[float]) -> tuple[float, float]:
    """Returns the range of an axis: all values and a margin."""
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
    if abs(value) >= _LARGEST:
        return f"{value:.3g}"
    for least, unit, letter in _MAGNITUDES:
        if abs(value) >= least:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"


_MOST_LABELS = 14  # maximum number of categories with a label
_NEAR = 1e-9


def written(value: AnyValue) -> str:
    """Formats a value of a hyperparameter, floats with few digits."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class AxisScale:
    """Scale of an axis, with positions from 0 to 1.

    Attributes:
      low: minimum, or its logarithm.
      high: maximum, or its logarithm.
      log: whether the scale is logarithmic.
      whole: whether all values are integers.
      names: values of a categorical axis, in order; empty for numbers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    names: tuple[str, ...] = ()

    def place(self, value: AnyValue) -> float | None:
        """Returns the position of a value; None if it has none."""
        if self.names:
            label = written(value)
            if label not in self.names:
                return None
            return self.names.index(label) / (len(self.names) - 1) if len(self.names) > 1 else 0.5
        if value is None or isinstance(value, str) or not math.isfinite(value):
            return None
        if self.log and value <= 0:
            return None
        number = math.log10(value) if self.log else float(value)
        return min(max((number - self.low) / (self.high - self.low), 0.0), 1.0)

    def marks(self) -> list[tuple[float, str]]:
        """Returns the positions and texts of the axis labels."""
        if self.names:
            every = math.ceil(len(self.names) / _MOST_LABELS)
            return [(self.place(name) or 0.0, name) for name in self.names[::every]]
        if self.log:
            margin = _NEAR * (self.high - self.low)
            numbers = powers(self.low - margin, self.high + margin)
        else:
            numbers = ticks(self.low, self.high, whole=self.whole)
        return [
            (place, short(number))
            for number in numbers
            if (place := self.place(number)) is not None
        ]


def svg_text(
    x: float, y: float, label: str, *, anchor: str, kind: str = "label", title: str = ""
) -> str:
    """Returns a text of a plot, with a class and, under the mouse, a title."""
    hint = f"<title>{escaped(title)}</title>" if title else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{hint}{escaped(label)}</text>"
    )


@dataclass(frozen=True)
class Frame:
    """Coordinate system of a plot.

    Attributes:
      left, right, top, bottom: bounds.
      margin: horizontal margin for markers.
    """

    left: int
    right: int
    top: int
    bottom: int
    margin: int = 0

    def x(self, place: float | None) -> float:
        """Returns the coordinate of a position from 0 to 1."""
        return self.left + self.margin + (place or 0.0) * (self.right - self.left - 2 * self.margin)

    def y(self, place: float | None) -> float:
        """Returns the coordinate of a position from 0 to 1, which is at the top."""
        return self.bottom - (place or 0.0) * (self.bottom - self.top)

    def rows(self, scale: AxisScale) -> Iterator[str]:
        """Yields a horizontal grid line for each label of the vertical axis."""
        for place, label in scale.marks():
            y = self.y(place)
            yield (
                f'<line class="grid" x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            yield svg_text(self.left - 6, y + 4, label, anchor="end")

    def columns(self, scale: AxisScale) -> Iterator[str]:
        """Yields the labels of the horizontal axis."""
        for place, label in scale.marks():
            yield svg_text(self.x(place), self.bottom + 16, label, anchor="middle")


Point = tuple[float, float]

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 444, 24, 196
_FRAME = Frame(_LEFT, _RIGHT, _TOP, _BOTTOM)
_MOST_POINTS = 300  # of a curve: finer than the plot's pixels can show
_FEW = 60  # points that are each drawn as a dot, which says its value under the mouse
_COLOURS = 5  # of the page's style
_LEGEND, _LETTER, _LINE = 48, 6.0, 14  # characters of a name; width of one, height of a line
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
    curves: Sequence[Curve],
    *,
    logarithmic: bool = False,
    marks: Sequence[float] = (),
    levels: Mapping[str, float] | None = None,
) -> str:
    """Returns curves over steps as an `<svg>` element that takes its colours from its page.

    It is drawn without matplotlib: every run has such a page, which is written again during the
    run, in milliseconds.

    Args:
      curves: one or more, of which at least one has a finite value.
      logarithmic: by powers of ten, if no value is 0 or less.
      marks: steps at which a dashed line stands.
      levels: values, by name, at which a dashed line goes from left to right, such as baselines.
    """
    finite = [point for curve in curves for point in curve.points if math.isfinite(point[1])]
    levels = levels or {}
    values = [*(value for _, value in finite), *levels.values()]
    logarithmic = logarithmic and min(values) > 0
    low, high = axis_range([math.log10(value) for value in values] if logarithmic else values)
    first, last = min(step for step, _ in finite), max(step for step, _ in finite)
    first, last = (first - 1, last + 1) if first == last else (first, last)
    widths, heights = AxisScale(first, last, whole=True), AxisScale(low, high, log=logarithmic)

    def x(step: float) -> float:
        return _FRAME.x(widths.place(step))

    def y(value: float) -> float:
        return _FRAME.y(heights.place(value))

    legend, above = _legend(curves, levels)
    box = f"0 {-above} {_WIDTH} {_HEIGHT + above}"
    parts = [f'<svg viewBox="{box}" aria-hidden="true" font-size="11">']
    parts += _grid(heights)
    parts += _labels_below(widths)
    parts += _name_below("step")
    for mark in marks:
        if first <= mark <= last:
            parts.append(
                f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{_TOP}" y2="{_BOTTOM}" '
                'stroke="var(--soft)" stroke-dasharray="1 3"/>'
            )
    for name, level in levels.items():
        parts.append(
            f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}" '
            f'stroke="var(--ink)" stroke-dasharray="4 4"><title>{escaped(name)}</title></line>'
        )
    for place, curve in enumerate(curves):
        parts += _drawn(curve, place, x, y)
    parts.append(legend)
    return "\n".join([*parts, "</svg>"])


def scatter(points: Sequence[Point], axes: tuple[str, str]) -> str:
    """Returns an `<svg>` element with a dot for each point, and the line on which both are equal.

    Args:
      points: (x, y), one or more, all finite.
      axes: names of x and y.
    """
    scale = AxisScale(*axis_range([value for point in points for value in point]))
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true" font-size="11">']
    parts += _grid(scale)
    parts += _labels_below(scale)
    parts.append(
        f'<line x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_TOP}" '
        'stroke="var(--soft)" stroke-dasharray="4 4"/>'
    )
    for first, second in points:
        parts.append(
            f'<circle cx="{_FRAME.x(scale.place(first)):.1f}" '
            f'cy="{_FRAME.y(scale.place(second)):.1f}" r="2.4" fill="var(--series0)" '
            f'fill-opacity=".6"><title>{first:.6g}, {second:.6g}</title></circle>'
        )
    names = [escaped(cut(name, _LEGEND)) for name in axes]
    parts += _name_below(names[0])
    parts.append(f'<text x="{_LEFT}" y="13" fill="var(--soft)">{names[1]}</text>')
    return "\n".join([*parts, "</svg>"])


def downsampled(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Returns about `most` points in which the least and the greatest of each stretch are left."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(2 * len(points) / most)
    sampled: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        finite = [point for point in part if math.isfinite(point[1])]
        if len(finite) < len(part):
            sampled.append((part[0][0], math.nan))  # the gap must not close
        if finite:
            least = min(finite, key=lambda point: point[1])
            greatest = max(finite, key=lambda point: point[1])
            sampled += sorted({least, greatest})
    return [*sampled, points[-1]] if sampled[-1] != points[-1] else sampled


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
        label = f"{escaped(curve.name)} {value:.6g} at step {step:,.0f}"
        yield f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="2.4" fill="{color}">'
        yield f"<title>{label}</title></circle>"


def _legend(curves: Sequence[Curve], levels: Mapping[str, float]) -> tuple[str, int]:
    """Returns the names with their last values, and the height of all lines above the first."""
    entries = []
    for place, curve in enumerate(curves):
        last = next((v for _, v in reversed(curve.points) if math.isfinite(v)), math.nan)
        entries.append((f"var(--series{place % _COLOURS})", "●", f"{curve.name} {number(last)}"))
    entries += [("var(--ink)", "┄", f"{name} {number(v)}") for name, v in levels.items()]
    lines: list[list[str]] = []
    left = 0.0
    for color, sign, label in entries:
        label = f"{cut(label[: label.rindex(' ')], _LEGEND)}{label[label.rindex(' ') :]}"
        size = _LETTER * width(f"{sign} {label}") + 10
        if not lines or size > left:
            lines.append([])
            left = _RIGHT - _LEFT
        gap = ' dx="10"' if lines[-1] else ""
        lines[-1].append(f'<tspan fill="{color}"{gap}>{sign} </tspan>{escaped(label)}')
        left -= size
    above = _LINE * (len(lines) - 1)
    texts = []
    for place, line in enumerate(lines):
        start = f'<text x="{_LEFT}" y="{13 - above + _LINE * place}" fill="var(--ink)">'
        texts += [start, *line, "</text>"]
    return "".join(texts), above


def _grid(scale: AxisScale) -> Iterator[str]:
    """Yields a horizontal line for each label of the vertical axis."""
    for place, label in scale.marks():
        y = _FRAME.y(place)
        yield (
            f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="var(--line)"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" '
            f'fill="var(--soft)">{label}</text>'
        )


def _labels_below(scale: AxisScale) -> Iterator[str]:
    for place, label in scale.marks():
        start = f'<text x="{_FRAME.x(place):.1f}" y="{_BOTTOM + 15}" text-anchor="middle"'
        yield f'{start} fill="var(--soft)">{label}</text>'


def _name_below(name: str) -> Iterator[str]:
    yield f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 30}" text-anchor="middle"'
    yield f'fill="var(--soft)">{name}</text>'


_CELL = 0.19  # inches, of a row or column with a word beside it
_LEAST_PANEL = 1.6  # inches
_WORD = 24  # characters shown of a word
_MOST_NUMBERS = 12  # rows, up to which each cell's number is written in it
# The first that has a letter draws it; the last ones have those of Chinese, Japanese and Korean.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
)
_HEAT_MAP_SETTINGS: Any = {
    "font.size": 8,
    "text.parse_math": False,  # a word may hold dollars
    "figure.facecolor": "white",
    "axes.facecolor": "#e9ebee",  # seen where there is no number
}


def check_matplotlib(what: str) -> None:
    """Checks that figures can be drawn.

    Args:
      what: needs them: a flag.

    Raises:
      UsageError: matplotlib is missing.
    """
    if not can_draw():
        raise UsageError(f"{what} draws with matplotlib:  {install_extra('plots')}")


def heat_maps(
    matrices: Sequence[npt.NDArray[np.floating[Any]]],
    *,
    title: str,
    titles: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    numbers: Sequence[Sequence[str]] | None = None,
) -> Figure:
    """Returns a figure with a panel for each matrix, side by side; colours go from 0 to 1.

    Args:
      matrices: [R, C] each, from 0 to 1; NaN stays grey.
      title: above the figure.
      titles: above each panel.
      rows: R words.
      columns: C words.
      axes: what rows and columns are.
      numbers: [R][C], written in the cells if there are few.
    """
    from matplotlib import font_manager, rc_context
    from matplotlib.figure import Figure

    wide = _panels_in_a_row(len(matrices))
    high = math.ceil(len(matrices) / wide)
    panel = [max(_LEAST_PANEL, _CELL * len(words)) for words in (columns, rows)]
    if numbers is not None and len(rows) <= _MOST_NUMBERS:
        panel = [max(_LEAST_PANEL, 2.4 * _CELL * len(words)) for words in (columns, rows)]
    size = (wide * (panel[0] + 0.2) + 1.3, high * (panel[1] + 0.25) + 1.5)
    installed = font_manager.get_font_names()
    fonts = [font for font in _FONTS if font in installed]
    with rc_context({**_HEAT_MAP_SETTINGS, "font.family": fonts}):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False).flatten()
        for place, ax in enumerate(panels):
            if place >= len(matrices):
                ax.set_visible(False)
                continue
            image = ax.imshow(matrices[place], vmin=0, vmax=1, cmap="Blues", aspect="auto")
            ax.set_title(titles[place], fontsize=8)
            ax.set_xticks(range(len(columns)), [_word(one) for one in columns], rotation=90)
            ax.set_yticks(range(len(rows)), [_word(one) for one in rows])
            if place + wide >= len(matrices):  # nothing is below it
                ax.tick_params(labelbottom=True)
                ax.set_xlabel(axes[1])
            if place % wide == 0:
                ax.set_ylabel(axes[0])
            if numbers is not None and len(rows) <= _MOST_NUMBERS:
                matrix = matrices[place]
                for row, label in enumerate(numbers):
                    for column, value in enumerate(label):
                        color = "white" if matrix[row, column] > 0.6 else "black"
                        ax.text(
                            column, row, value, ha="center", va="center", fontsize=7, color=color
                        )
        figure.suptitle(visible(title), fontsize=9)
        figure.colorbar(image, ax=list(panels), shrink=0.6, aspect=30)
    return figure


def _panels_in_a_row(count: int) -> int:
    """Returns how many panels make a shape near a square, if possible without a gap."""
    least = math.ceil(math.sqrt(count))
    return next((wide for wide in range(least, 2 * least) if count % wide == 0), least)


def _word(text: str) -> str:
    return cut(visible(text), _WORD)
