"""Spans of words, read off tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNKNOWN_TAG = "B-<unknown>"
"""What stands for a tag that has no name: a span that nothing is equal to."""


class TagSpan(NamedTuple):
    """Words first to last, the last one included, of one kind."""

    first: int
    last: int
    kind: str


def spans_of(tags: Sequence[str]) -> list[TagSpan]:
    """Returns the spans of tags such as B-city, I-city, O, as the script conlleval finds them.

    A span begins at B-X or S-X, and at I-X or E-X after another kind, after O, or after the end of
    a span (E-X, S-X); so both IOB1 and IOB2 are read.  A tag without "-" is a kind by itself, but
    for O.  Tjong Kim Sang and Buchholz 2000, "Introduction to the CoNLL-2000 shared task".
    """
    found: list[TagSpan] = []
    first, kind, ended = -1, "", True
    for place, tag in enumerate(tags):
        prefix, _, rest = tag.partition("-")
        if tag == "O":
            prefix, rest = "O", ""
        elif not rest:
            prefix, rest = "I", tag
        goes_on = prefix in ("I", "E") and rest == kind and not ended
        if not goes_on:
            if first >= 0:
                found.append(TagSpan(first, place - 1, kind))
            first, kind = (-1, "") if prefix == "O" else (place, rest)
        ended = prefix in ("O", "E", "S")
    if first >= 0:
        found.append(TagSpan(first, len(tags) - 1, kind))
    return found
