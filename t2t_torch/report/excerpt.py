"""Texts of the data as they can be shown: nothing invisible, not too long."""

from __future__ import annotations

import itertools
import unicodedata

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
