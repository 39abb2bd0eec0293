"""Elements of a report, independent of the output format."""

from __future__ import annotations

import html
import itertools
import math
import re
import time
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.reports.statistics import SampleRow


@dataclass(frozen=True)
class Bar:
    """A text with a bar below it on a page, of a length from 0 to 1."""

    text: str
    length: float


@dataclass(frozen=True)
class Heat(Bar):
    """A text on a background that is the stronger the closer `length` is to 1."""


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


_MATRIX = 12  # labels of a matrix
_TABLE = 30  # labels of a table
_PAIRS = 10  # pairs that are listed
_SHORT = 40  # columns of a label beside a matrix
_HEAD = 8  # columns of a label above a matrix: longer ones have a number


def confusion_blocks(
    labels: Sequence[str], pairs: Iterable[tuple[int, int, int]]
) -> Iterator[Block]:
    """Yields a confusion matrix, the most confused pairs, and precision and recall of labels.

    Of many labels those with the most errors are shown; the matrix sums the others.

    Args:
      labels: names of the labels.
      pairs: (reference, prediction, count), references and predictions as indices of labels.
    """
    labels = [label_text(label) for label in labels]
    counts = np.array([pair for pair in pairs if pair[2]], np.int64).reshape(-1, 3)
    wrong = counts[counts[:, 0] != counts[:, 1]]
    support, predicted, missed, false = (
        np.bincount(some[:, side], some[:, 2], len(labels)).astype(int).tolist()
        for some in (counts, wrong)
        for side in (0, 1)
    )
    used = [label for label in range(len(labels)) if support[label] or predicted[label]]
    if not used:
        yield Note("No reference of the evaluation is a known label.")
        return
    worst = sorted(used, key=lambda label: -missed[label] - false[label])
    yield _matrix(labels, counts, sorted(worst[:_MATRIX]))
    if confused := sorted((-n, pair) for *pair, n in wrong.tolist())[:_PAIRS]:
        rows: list[list[Cell]] = [
            [labels[one], labels[other], number(-n), percent(-n / support[one])]
            for n, (one, other) in confused
        ]
        head = ("reference", "prediction", "count", "of the reference")
        yield Table(head, rows, frozenset({0, 1}), "Most confused pairs")
    statistics = [
        (labels[i], support[i], predicted[i], support[i] - missed[i])
        for i in sorted(worst[:_TABLE])
    ]
    yield label_table(statistics, len(used))


def label_table(statistics: Sequence[tuple[str, int, int, int]], total: int) -> Table:
    """Returns a table of precision, recall and F1.

    Args:
      statistics: for each label its name and how often it is the reference, predicted, and both.
      total: number of labels, more than there are rows if only those with errors are listed.
    """
    rows: list[list[Cell]] = []
    for label, support, predicted, right in statistics:
        precision = f"{right / predicted:.3f}" if predicted else ""
        recall = f"{right / support:.3f}" if support else ""
        f1 = 2 * right / (support + predicted) if support + predicted else 0.0
        rows.append([label, number(support), precision, recall, Bar(f"{f1:.3f}", f1)])
    title = "Labels"
    if len(rows) < total:
        title = f"The {len(rows)} of {counted(total, 'label')} with the most errors"
    return Table(("label", "references", "precision", "recall", "F1"), rows, frozenset({0}), title)


def _matrix(labels: Sequence[str], counts: npt.NDArray[np.int64], shown: Sequence[int]) -> Table:
    """Returns the confusion matrix of some labels, with the sum of all others if there are any.

    Args:
      labels: names of the labels.
      counts: rows of reference, prediction and count.
      shown: the labels, ascending.
    """
    others = len(shown)
    place = np.full(len(labels), others)
    place[shown] = range(others)
    cells = np.zeros((others + 1, others + 1), np.int64)
    np.add.at(cells, (place[counts[:, 0]], place[counts[:, 1]]), counts[:, 2])
    has_others = bool(cells[others].any() or cells[:, others].any())
    cells = cells[: others + has_others, : others + has_others]
    names = [cut(visible(labels[label]), _SHORT) for label in shown]
    columns = names
    if any(width(name) > _HEAD for name in names):
        columns = [str(i + 1) for i in range(others)]
        names = [f"{i + 1}  {name}" for i, name in enumerate(names)]
    rows: list[list[Cell]] = []
    for name, row in zip([*names, "others"], cells.tolist(), strict=False):
        total = sum(row) or 1
        rows.append([name, *(Heat(number(one) if one else "", one / total) for one in row)])
    head = ["reference \\ prediction", *columns, *["others"][:has_others]]
    title = "Confusion matrix"
    if has_others:
        title += f": the {others} labels with the most errors"
    return Table(head, rows, frozenset({0}), title)


def number(value: float) -> str:
    """Formats a number: integers with separators, others with four digits; also "inf", "nan"."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e15:
        return f"{value:.4g}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(share: float) -> str:
    """Formats a fraction as a percentage; small ones with enough decimal places."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    places = 0 if share in (0, 1) else 1 if share >= 0.1 else 2
    return f"{100 * share:.{places}f} %"


def time_text(seconds: float) -> str:
    """Returns a time since 1970 as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


def counted(count: int, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_PLURALS = {"is": "are", "was": "were", "has": "have"}


def subject(count: int, noun: str, of: str, verb: str) -> str:
    """Returns the beginning of a sentence, given in the singular: "2 rows of dev have"."""
    several = _PLURALS.get(verb, verb.removesuffix("s"))
    return f"{counted(count, noun)} of {of} {verb if count == 1 else several}"


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


def label_text(label: str) -> str:
    """Returns a label with blanks at its ends made visible; "(empty)" for none."""
    return re.sub(r"\A +| +\Z", lambda blanks: "␣" * len(blanks[0]), label) or "(empty)"


def command_line(command: str, label: str = "") -> Markup:
    """Returns a command as HTML that wraps between arguments, not at their hyphens."""
    arguments = " ".join(f"<span>{escaped(one)}</span>" for one in command.split())
    return Markup(f'<p class="command">{escaped(label)} {arguments}</p>')


def escaped(text: str) -> str:
    """Returns a text as HTML, for an element or a quoted attribute; see `visible`."""
    return html.escape(visible(text))


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """Yields the lines of a table, whose columns are as wide as their longest cell.

    Args:
      rows: cells of each row, the header first.
      left: columns that are aligned on their left, as words are.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = (pad(cell, w, right=n not in left) for n, (cell, w) in enumerate(cells))
        yield "  ".join(padded).rstrip()


def cut(text: str, columns: int) -> str:
    """Truncates a text to a width in terminal columns, with an ellipsis."""
    if width(text) <= columns:
        return text
    ends = itertools.accumulate(map(_columns, text))
    characters = sum(1 for _ in itertools.takewhile(lambda end: end < columns, ends))
    return text[:characters].rstrip() + "…"


def width(text: str) -> int:
    """Returns the width of a text in terminal columns."""
    return len(text) if text.isascii() else sum(_columns(character) for character in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Pads a text with spaces, at its end or, for numbers, at its start."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
