"""What a report consists of, whatever it is written as."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from t2t_torch.reports.statistics import SampleRow


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


# Texts of the data as they can be shown: nothing invisible, not too long.


_JOINERS = "\u200c\u200d"  # parts of words and of emoji, and no danger to a terminal


def visible(text: str) -> str:
    """Writes control characters and the like, which would move a cursor, as escapes.

    What is shown stays as it is if it is shown again.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _JOINERS else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode() if character != "\u00a0" else "␣"


def cut(text: str, columns: int) -> str:
    """Returns a text that is at most so wide on a terminal; an ellipsis shows that it is cut."""
    if width(text) <= columns:
        return text
    ends = itertools.accumulate(map(_columns, text))
    kept = sum(1 for _ in itertools.takewhile(lambda end: end < columns, ends))
    return text[:kept].rstrip() + "…"


def width(text: str) -> int:
    """Returns how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Fills a text up with spaces, at its end or, for numbers, at its beginning."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
