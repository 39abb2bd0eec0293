"""Matrices as figures of matplotlib, with a word at each row and column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import UsageError, install_extra
from t2t_torch.report.excerpt import cut, visible
from t2t_torch.report.plots import can_draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
_SETTINGS: Any = {
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
    with rc_context({**_SETTINGS, "font.family": fonts}):
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
                _write(ax, matrices[place], numbers)
        figure.suptitle(visible(title), fontsize=9)
        figure.colorbar(image, ax=list(panels), shrink=0.6, aspect=30)
    return figure


def _panels_in_a_row(count: int) -> int:
    """Returns how many panels make a shape near a square, if possible without a gap."""
    least = math.ceil(math.sqrt(count))
    return next((wide for wide in range(least, 2 * least) if count % wide == 0), least)


def _write(
    ax: Any, matrix: npt.NDArray[np.floating[Any]], numbers: Sequence[Sequence[str]]
) -> None:
    for row, told in enumerate(numbers):
        for column, number in enumerate(told):
            color = "white" if matrix[row, column] > 0.6 else "black"
            ax.text(column, row, number, ha="center", va="center", fontsize=7, color=color)


def _word(text: str) -> str:
    return cut(visible(text), _WORD)
