"""Tags of words: spans, and which tag may follow which."""

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


_SPAN_MARKS = ("B-", "I-", "E-", "S-")


def marks_spans(labels: Sequence[str]) -> bool:
    """Whether tags mark spans, as B-city and I-city do and parts of speech do not."""
    return any(label.startswith(_SPAN_MARKS) for label in labels)


# Which tags may follow which, read off their names.


class TagRules(NamedTuple):
    """What a sequence of C tags may look like.

    Attributes:
      starts: for each tag whether a sentence may begin with it.
      follows: row a, column b: whether tag b may stand right after tag a.
      ends: for each tag whether a sentence may end with it.
    """

    starts: list[bool]
    follows: list[list[bool]]
    ends: list[bool]


class _Tag(NamedTuple):
    goes_on: bool  # it needs a word of the same span before it
    is_open: bool  # a word of the same span must follow
    place: str  # B, I, E or S; empty outside of spans
    kind: str


def tag_rules(labels: Sequence[str]) -> TagRules:
    """Returns the rules of tags written as IOB2 or IOBES (BIOES).

    I-X and E-X stand after B-X or I-X alone.  Where there is an E-X, a span that B-X opens is
    closed by it.  A kind without B-X has no rule, and neither have O and tags of other forms.  Tags
    written as IOB1, where B-X stands between neighbours alone, obey other rules than these.

    Args:
      labels: the names of the tags, in the order of their ids.
    """
    names = [_place_and_kind(label) for label in labels]
    opened = {kind for place, kind in names if place == "B"}
    closed = {kind for place, kind in names if place == "E"}
    tags = [
        _Tag(
            goes_on=place in ("I", "E") and kind in opened,
            is_open=place in ("B", "I") and kind in opened and kind in closed,
            place=place,
            kind=kind,
        )
        for place, kind in names
    ]
    return TagRules(
        starts=[not tag.goes_on for tag in tags],
        follows=[[_may_follow(before, tag) for tag in tags] for before in tags],
        ends=[not tag.is_open for tag in tags],
    )


def _may_follow(before: _Tag, tag: _Tag) -> bool:
    if tag.goes_on:
        return before.place in ("B", "I") and before.kind == tag.kind
    return not before.is_open


def _place_and_kind(label: str) -> tuple[str, str]:
    place, dash, kind = label.partition("-")
    return (place, kind) if dash and place in ("B", "I", "E", "S") else ("", label)
