"""Plots of a census, as SVG that takes its colours from the page it stands in."""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch.census.buckets import BucketTable
from t2t_torch.census.census import Census
from t2t_torch.census.lengths import Histogram, PairHistogram
from t2t_torch.errors import install_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = f"There are no plots: matplotlib is missing.  {install_extra('plots')}"
"""What is said where they cannot be drawn."""

# What is drawn in these colours gets those of the page's style: `style.py`.
INK, LINE = "#0a0b0c", "#0d0e0f"
SERIES = ("#1a0b0c", "#2a0b0c", "#3a0b0c")
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
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(census: Census) -> dict[str, str]:
    """Returns an `<svg>` element for each plot, by the names of `section.Plot`."""
    drawn: dict[str, str] = {}
    for feature in census.features:
        if feature.histogram is not None:
            by = f"length of {feature.name}" if feature.shape[:1] == (None,) else feature.name
            name = f"histogram-{feature.name}"
            drawn[name] = _svg(_histogram(feature.histogram, by), len(drawn))
    for pair in census.pairs:
        size = (3.4, 3.1)
        drawn[f"pair-{pair.names[1]}"] = _svg(_pair(pair), len(drawn), size=size)
    if census.buckets is not None:
        bars = _buckets(census.buckets)
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
