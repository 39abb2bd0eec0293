"""What a report consists of, whatever it is written as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from t2t_torch.census.samples import SampleRow


@dataclass(frozen=True)
class Bar:
    """A text, and how long a bar a page draws under it: from 0 to 1."""

    text: str
    length: float


Cell: TypeAlias = str | Bar


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
      head: of the columns.
      rows: [rows][columns].
      words: the numbers of the columns that hold words; the others hold numbers.
      title: above it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset()
    title: str = ""


@dataclass(frozen=True)
class Note:
    """A sentence."""

    text: str


@dataclass(frozen=True)
class Plot:
    """A place for a plot of a page; nothing on a terminal.

    Attributes:
      name: which plot: see `plots.py`.
      alternative: what is seen on it, for those who do not see it.
    """

    name: str
    alternative: str


@dataclass(frozen=True)
class Picture:
    """A picture of a page; nothing on a terminal.

    Attributes:
      png: its file.
      alternative: what is seen on it, for those who do not see it.
    """

    png: bytes
    alternative: str


@dataclass(frozen=True)
class Markup:
    """A part of a page that is written as HTML already; nothing on a terminal.

    Attributes:
      html: whose texts are escaped.
    """

    html: str


Block: TypeAlias = Table | Note | Plot | Picture | Markup | SampleRow


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
      name: short and unique, the anchor of a page.
      title: its heading.
      meaning: what its words and numbers mean.
      blocks: what it says.
    """

    name: str
    title: str
    meaning: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def number(value: float) -> str:
    """Writes a number: whole ones with separators, others with four digits; also "inf", "nan"."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(share: float) -> str:
    """Writes a share; a small one with as many places as it takes to see it."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    places = 0 if share in (0, 1) else 1 if share >= 0.1 else 2
    return f"{100 * share:.{places}f} %"


def counted(count: int, noun: str) -> str:
    """Writes a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
