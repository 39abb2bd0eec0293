"""Inference of a table's header from the values below it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from t2t_torch.readers.head import SURE

USUAL_NAMES = frozenset(
    "answer body category class content context description document domain id intent judgment "
    "label language line message name query question rating review score sentence sentiment source "
    "split subject summary tag target text title tokens topic translation tree type utterance "
    "words".split()
)
"""Frequent names of columns, a small bonus."""

_NUMBER = re.compile(r"[^\w\s(\[]{0,2}\d+(?:[.,' ]\d+)*(?:e[+-]?\d+)?\s?%?", re.IGNORECASE)
_SHAPES = (
    ("a number", _NUMBER),
    ("a date or time", re.compile(r"\D{0,8}\d{1,4}[-/.:]\d{1,2}[-/.:]\d{1,4}\b.*")),
    ("a list or tree", re.compile(r"[\[({].*[\])}]", re.DOTALL)),
    ("a path or address", re.compile(r"\S*[/\\@]\S+|\S+\.\w{2,4}")),
    ("a code", re.compile(r"(?=\S*\d)\S+")),
    ("a sentence", re.compile(r".*\s.*[.!?…。।]\W*", re.DOTALL)),
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:[._:-]\w+)*")
_CLEAR = 1.5  # evidence from which a header is not doubted
_FEW = 5  # rows from which repetition is evidence


class Header(NamedTuple):
    """The inferred header.

    Attributes:
      is_header: True if the first row names the columns.
      evidence: sum of the evidence for it, negative against it.
      reason: the strongest evidence against it, as a sentence.
      doubts: a warning if the evidence is weak.
      repeated: number of later rows that repeat it.
      twice: a name of two columns, which makes the header invalid; "" if there is none.
    """

    is_header: bool
    evidence: float
    reason: str
    doubts: Sequence[str]
    repeated: int = 0
    twice: str = ""


def find_header(rows: Sequence[Sequence[str]]) -> Header:
    """Returns whether the first row names the columns.

    A name does not look like the values below it: it is no number above numbers, does not occur
    among values that repeat, and is shorter than texts.

    Args:
      rows: the first rows, all cells as strings.
    """
    first = [cell.strip() for cell in rows[0]]
    below = [row for row in rows[1:] if [cell.strip() for cell in row] != first]
    repeated = len(rows) - 1 - len(below)
    found = [
        _of_column(cell, [row[n].strip() for row in below if len(row) == len(first)])
        for n, cell in enumerate(first)
    ]
    evidence = sum(one for one, _ in found)
    counts = Counter(filter(None, first))
    twice = next((name for name, count in counts.items() if count > 1), "")
    if twice and evidence < _CLEAR:
        found.append((-2.0, f"two of its fields are {twice!r}"))
        evidence -= 2.0
    least, why = min(found)
    why = why if least < 0 else "nothing in it differs from the rows below"
    reason = f"the first row is read as data, not as column names: {why}."
    is_header = evidence > 0 and any(first)
    doubts = []
    if is_header and evidence < _CLEAR:
        doubts.append(
            f"the first row is read as the column names ({', '.join(first)}); if it is data, write "
            '"options": {"header": false}.'
        )
    if repeated and is_header and len(first) > 1:
        doubts.append(f"the header is repeated in {repeated} rows, which are bad and left out.")
    return Header(is_header, evidence, reason, doubts, repeated, twice if is_header else "")


def _of_column(cell: str, values: Sequence[str]) -> tuple[float, str]:
    """Returns the evidence that a cell names the column of some values, and a reason against it."""
    held = [value for value in values if value]
    if not cell:
        return 0.0, ""
    shown = repr(cell[:40])
    bonus = 0.0
    if not USUAL_NAMES.isdisjoint(re.split(r"[\W_\d]+", cell.lower())):
        bonus += 0.5
    if _IDENTIFIER.fullmatch(cell):
        bonus += 0.25
    if not held:
        return (bonus or -0.25), f"{shown} is no name"
    counts = Counter(held)
    if cell in counts:
        return -3.0, f"{shown} is in other rows of the column too"
    for shape, pattern in _SHAPES:
        fitting = sum(n for value, n in counts.items() if pattern.fullmatch(value))
        if fitting >= SURE * len(held):
            if not pattern.fullmatch(cell):
                return 2.0 + bonus, ""
            asked = cell.endswith("?") and sum("?" in value for value in held) * 2 < len(held)
            if asked:  # a question of a survey above its answers
                return 1.0, ""
            return (-0.5 if bonus else -1.5), f"{shown} is {shape} as those below"
    if len(held) >= _FEW and len(counts) * 3 <= len(held):
        return 1.5 + bonus, ""
    if _NUMBER.fullmatch(cell):
        return -1.0, f"{shown} is no name"
    lengths = sorted(len(value) for value in held)
    words = sorted(len(value.split()) for value in held)
    if len(cell.split()) < words[len(words) // 20] or len(cell) * 2 < lengths[len(lengths) // 20]:
        return 0.75 + bonus, ""
    if len(cell) >= lengths[len(lengths) // 4]:
        return bonus - 0.75, f"{shown} is as long as the values below"
    return bonus - 0.25, f"{shown} may be a value as those below"
