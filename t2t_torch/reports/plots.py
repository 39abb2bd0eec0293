"""Plots of reports: statistics, curves with axes, heat maps.

Plots of pages are SVG that takes its colours and its style from the page it stands in.  They are
written out here and not by matplotlib, which draws the heat maps of TensorBoard: every run has such
a page, also where matplotlib is missing, and it is written again during the run, in milliseconds.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.reports.column_statistics import BucketTable, Histogram, PairHistogram
from t2t_torch.reports.section import cut, escaped, number, visible, width
from t2t_torch.reports.statistics import DatasetStatistics
from t2t_torch.search_space import AnyValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # grey, grey and alpha, RGB, RGBA


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Returns the file of a picture, [height, width, channels], with 1 to 4 channels.

    W3C, Portable Network Graphics, third edition.
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = pixels.reshape(height, width * channels)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    content = zlib.compress(unfiltered.tobytes(), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def data_of(pixels: npt.NDArray[np.uint8]) -> str:
    """Returns a picture as the address of an image of a page; see `png`."""
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


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

    def diagonal(self) -> str:
        """Returns the dashed line on which both axes are equal."""
        return _dashes((self.left, self.bottom), (self.right, self.top))


Point = tuple[float, float]

_WIDTH, _HEIGHT = 460, 230
_FRAME = Frame(58, 444, 24, 196)
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

    parts = [*_FRAME.rows(heights), *_FRAME.columns(widths)]
    for step in marks:
        if first <= step <= last:
            parts.append(_dashes((x(step), _FRAME.top), (x(step), _FRAME.bottom), "1 3"))
    for name, level in levels.items():
        parts.append(_dashes((_FRAME.left, y(level)), (_FRAME.right, y(level)), title=name))
    entries = []
    for place, curve in enumerate(curves):
        parts += _drawn(curve, place, x, y)
        value = next((v for _, v in reversed(curve.points) if math.isfinite(v)), math.nan)
        entries.append((_color(place), "●", f"{cut(curve.name, _LEGEND)} {number(value)}"))
    for name, level in levels.items():
        entries.append(("var(--ink)", "┄", f"{cut(name, _LEGEND)} {number(level)}"))
    legend, above = _legend(entries)
    return _svg([*parts, legend], "step", above=above)


def scatter(points: Sequence[Point], axes: tuple[str, str]) -> str:
    """Returns an `<svg>` element with a dot for each point, and the line on which both are equal.

    Args:
      points: (x, y), one or more, all finite.
      axes: names of x and y.
    """
    scale = AxisScale(*axis_range([value for point in points for value in point]))
    parts = [*_FRAME.rows(scale), *_FRAME.columns(scale), _FRAME.diagonal()]
    for first, second in points:
        parts.append(
            f'<circle cx="{_FRAME.x(scale.place(first)):.1f}" '
            f'cy="{_FRAME.y(scale.place(second)):.1f}" r="2.4" fill="var(--series0)" '
            f'fill-opacity=".6"><title>{first:.6g}, {second:.6g}</title></circle>'
        )
    return _svg(parts, *axes)


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
            sampled += sorted({least, max(finite, key=lambda point: point[1])})
    return [*sampled, points[-1]] if sampled[-1] != points[-1] else sampled


def _drawn(
    curve: Curve, place: int, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    """Yields a curve's lines, and its dots if they are few."""
    color = _color(place)
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


def _svg(
    parts: Iterable[str], below: str, beside: str = "", *, frame: Frame = _FRAME, above: int = 0
) -> str:
    """Returns a plot with the names of its axes, and as much space above it as its legend needs."""
    size = frame.right + _WIDTH - _FRAME.right, _HEIGHT + above
    return "\n".join(
        [
            f'<svg viewBox="0 {-above} {size[0]} {size[1]}" aria-hidden="true" font-size="11">',
            *parts,
            svg_text(frame.x(0.5), frame.bottom + 30, cut(below, _LEGEND), anchor="middle"),
            *([svg_text(frame.left, 13, cut(beside, _LEGEND), anchor="start")] if beside else ()),
            "</svg>",
        ]
    )


def _color(place: int) -> str:
    return f"var(--series{place % _COLOURS})"


def _dashes(start: Point, end: Point, dash: str = "4 4", title: str = "") -> str:
    hint = f"<title>{escaped(title)}</title>" if title else ""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="var(--soft)" stroke-dasharray="{dash}">{hint}</line>'
    )


def _legend(entries: Iterable[tuple[str, str, str]]) -> tuple[str, int]:
    """Returns the legend, and the height of all its lines above the first.

    Args:
      entries: colour, sign and text of each.
    """
    lines: list[list[str]] = []
    left = 0.0
    for color, sign, label in entries:
        size = _LETTER * width(f"{sign} {label}") + 10
        if not lines or size > left:
            lines.append([])
            left = _FRAME.right - _FRAME.left
        gap = ' dx="10"' if lines[-1] else ""
        lines[-1].append(f'<tspan fill="{color}"{gap}>{sign} </tspan>{escaped(label)}')
        left -= size
    above = _LINE * (len(lines) - 1)
    texts = []
    for place, line in enumerate(lines):
        start = f'<text x="{_FRAME.left}" y="{13 - above + _LINE * place}" fill="var(--ink)">'
        texts += [start, *line, "</text>"]
    return "".join(texts), above


def draw(statistics: DatasetStatistics) -> dict[str, str]:
    """Returns an `<svg>` element for each plot, by the names of `section.Plot`."""
    drawn: dict[str, str] = {}
    for feature in statistics.features:
        if feature.histogram is not None:
            has_lengths = feature.shape[:1] == (None,)
            by = f"length of {feature.name}" if has_lengths else feature.name
            drawn[f"histogram-{feature.name}"] = _histogram(
                feature.histogram, by, whole=has_lengths
            )
    for pair in statistics.pairs:
        drawn[f"pair-{pair.names[1]}"] = _pair(pair)
    if statistics.buckets is not None:
        drawn["buckets"] = _buckets(statistics.buckets)
    return drawn


def _histogram(histogram: Histogram, by: str, *, whole: bool) -> str:
    log = histogram.logarithmic
    ends = histogram.edges[0], histogram.edges[-1]
    widths = AxisScale(*axis_range(list(map(math.log10, ends)) if log else ends), log, whole)
    shares = {
        split: [100 * count / max(1, sum(counts)) for count in counts]
        for split, counts in histogram.counts.items()
    }
    heights = AxisScale(0.0, 1.05 * max(map(max, shares.values())) or 1.0)
    parts = [*_FRAME.rows(heights), *_FRAME.columns(widths)]
    for place, of_split in enumerate(shares.values()):
        outline = [(histogram.edges[0], 0.0)]
        for low, high, share in zip(histogram.edges, histogram.edges[1:], of_split, strict=False):
            outline += [(low, share), (high, share)]
        outline.append((histogram.edges[-1], 0.0))
        line = " ".join(
            f"{_FRAME.x(widths.place(edge)):.1f},{_FRAME.y(heights.place(share)):.1f}"
            for edge, share in outline
        )
        fill = "none" if place else _color(place)
        parts.append(
            f'<polyline points="{line}" fill="{fill}" fill-opacity=".25" stroke="{_color(place)}" '
            'stroke-width="1.4"/>'
        )
    entries = [(_color(place), "●", split) for place, split in enumerate(shares)]
    legend, above = _legend([*entries, ("var(--soft)", "↑", "% of rows")])
    return _svg([*parts, legend], by, above=above)


_SQUARE = Frame(58, 58 + _FRAME.bottom - _FRAME.top, _FRAME.top, _FRAME.bottom)
_SPECKLE = (37, 99, 190)  # of pictures, which have colours of their own: seen on dark and light


def _pair(pair: PairHistogram) -> str:
    counts = np.asarray(pair.counts, float).T[::-1]  # rows upwards
    strength = np.log1p(counts) / max(1e-9, float(np.log1p(counts.max())))
    pixels = np.zeros((*counts.shape, 4), np.uint8)
    pixels[..., :3] = _SPECKLE
    pixels[..., 3] = np.where(counts > 0, 40 + 215 * strength, 0)
    scale, size = AxisScale(0.0, pair.edges[-1], whole=True), _SQUARE.bottom - _SQUARE.top
    picture = (
        f'<image href="{data_of(pixels)}" x="{_SQUARE.left}" y="{_SQUARE.top}" width="{size}" '
        f'height="{size}" preserveAspectRatio="none"/>'
    )
    parts = [*_SQUARE.rows(scale), *_SQUARE.columns(scale), picture, _SQUARE.diagonal()]
    first, second = (f"length of {name}" for name in pair.names)
    return _svg(parts, first, second, frame=_SQUARE)


_UPPER, _LOWER = Frame(58, 444, 24, 100, margin=12), Frame(58, 444, 120, 196, margin=12)


def _buckets(table: BucketTable) -> str:
    """Returns the rows of each bucket, and the share of padding below."""
    names = [str(one.high) if one.high is not None else "more" for one in table.buckets]
    widths = AxisScale(0.0, 1.0, names=tuple(names))
    paddings = [100 * one.padding for one in table.buckets]
    panels = ((_UPPER, [float(one.rows) for one in table.buckets]), (_LOWER, paddings))
    parts: list[str] = []
    for place, (frame, values) in enumerate(panels):
        heights = AxisScale(0.0, 1.05 * max(values) or 1.0)
        parts += frame.rows(heights)
        bar = 0.8 * (frame.right - frame.left - 2 * frame.margin) / max(len(values), 16)
        for name, value in zip(names, values, strict=True):
            x, y = frame.x(widths.place(name)), frame.y(heights.place(value))
            parts.append(
                f'<rect x="{x - bar / 2:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                f'height="{frame.bottom - y:.1f}" fill="{_color(place)}"/>'
            )
    level = _LOWER.y(heights.place(100 * table.padding))
    parts += [*_LOWER.columns(widths), _dashes((_LOWER.left, level), (_LOWER.right, level))]
    parts.append(svg_text(_LOWER.left, _LOWER.top - 6, "% of padding", anchor="start"))
    return _svg(parts, "longest length of the bucket", "rows", frame=_LOWER)


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

    least = math.ceil(math.sqrt(len(matrices)))  # near a square, if possible without a gap
    wide = next((n for n in range(least, 2 * least) if len(matrices) % n == 0), least)
    high = math.ceil(len(matrices) / wide)
    if len(rows) > _MOST_NUMBERS:
        numbers = None
    cell = _CELL if numbers is None else 2.4 * _CELL
    panel = [max(_LEAST_PANEL, cell * len(words)) for words in (columns, rows)]
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
            for row, label in enumerate(numbers or ()):
                for column, value in enumerate(label):
                    color = "white" if matrices[place][row, column] > 0.6 else "black"
                    ax.text(column, row, value, ha="center", va="center", fontsize=7, color=color)
        figure.suptitle(visible(title), fontsize=9)
        figure.colorbar(image, ax=list(panels), shrink=0.6, aspect=30)
    return figure


def _word(text: str) -> str:
    return cut(visible(text), _WORD)
