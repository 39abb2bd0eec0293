"""Elements of a report, independent of the output format."""

from __future__ import annotations

import html
import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from t2t_torch.reports.statistics import SampleRow


@dataclass(frozen=True)
class Bar:
    """A text with a bar below it on a page, of a length from 0 to 1."""

    text: str
    length: float


Cell: TypeAlias = str | Bar


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
      head: column headings.
      rows: [rows][columns].
      words: indices of text columns; the others are numeric.
      title: title above the table.
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
    """A plot on a page; omitted on a terminal.

    Attributes:
      name: name of the plot; see `plots.py`.
      alternative: alternative text for accessibility.
    """

    name: str
    alternative: str


@dataclass(frozen=True)
class Picture:
    """An image on a page; omitted on a terminal.

    Attributes:
      png: PNG file.
      alternative: alternative text for accessibility.
    """

    png: bytes
    alternative: str


@dataclass(frozen=True)
class Markup:
    """A fragment of HTML on a page; omitted on a terminal.

    Attributes:
      html: HTML with escaped texts.
    """

    html: str


Block: TypeAlias = Table | Note | Plot | Picture | Markup | SampleRow


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
      name: short and unique, the anchor of a page.
      title: heading.
      meaning: explanation of its terms and numbers.
      blocks: content.
    """

    name: str
    title: str
    meaning: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def number(value: float) -> str:
    """Formats a number: integers with separators, others with four digits; also "inf", "nan"."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(share: float) -> str:
    """Formats a fraction as a percentage; small ones with enough decimal places."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    places = 0 if share in (0, 1) else 1 if share >= 0.1 else 2
    return f"{100 * share:.{places}f} %"


def counted(count: int, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# Printable texts: without control characters, not too long.


_JOINERS = "\u200c\u200d"  # parts of words and of emoji, and no danger to a terminal


def visible(text: str) -> str:
    """Escapes control characters and the like, which would move the cursor.

    The function is idempotent.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _JOINERS else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode() if character != "\u00a0" else "␣"


def escaped(text: str) -> str:
    """Returns a text as HTML, for an element or a quoted attribute; see `visible`."""
    return html.escape(visible(text))


def cut(text: str, columns: int) -> str:
    """Truncates a text to a width in terminal columns, with an ellipsis."""
    if width(text) <= columns:
        return text
    ends = itertools.accumulate(map(_columns, text))
    characters = sum(1 for _ in itertools.takewhile(lambda end: end < columns, ends))
    return text[:characters].rstrip() + "…"


def width(text: str) -> int:
    """Returns the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Pads a text with spaces, at its end or, for numbers, at its start."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
