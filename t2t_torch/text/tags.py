"""Word tags: spans and tag transition rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNKNOWN_TAG = "B-<unknown>"
"""Placeholder for a tag without a name: a span that is equal to no other."""


class TagSpan(NamedTuple):
    """A span of words of one kind, from `first` to `last` inclusive."""

    first: int
    last: int
    kind: str


def spans_of(tags: Sequence[str]) -> list[TagSpan]:
    """Returns the spans of tags such as B-city, I-city, O, following the conlleval script.

    A span begins at B-X or S-X, and at I-X or E-X after another kind, after O, or after the end of
    a span (E-X, S-X); so both IOB1 and IOB2 are supported.  A tag without "-" is its own kind,
    except O.
    Tjong Kim Sang and Buchholz 2000, "Introduction to the CoNLL-2000 shared task".
    """
    spans: list[TagSpan] = []
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
                spans.append(TagSpan(first, place - 1, kind))
            first, kind = (-1, "") if prefix == "O" else (place, rest)
        ended = prefix in ("O", "E", "S")
    if first >= 0:
        spans.append(TagSpan(first, len(tags) - 1, kind))
    return spans


_SPAN_MARKS = ("B-", "I-", "E-", "S-")


def marks_spans(labels: Sequence[str]) -> bool:
    """Returns whether tags mark spans, such as B-city and I-city, unlike parts of speech."""
    return any(label.startswith(_SPAN_MARKS) for label in labels)


# Transition rules, derived from tag names.


class TagRules(NamedTuple):
    """Transition rules of C tags.

    Attributes:
      starts: [C], whether each tag may start a sentence.
      follows: [C, C], whether tag b (column) may directly follow tag a (row).
      ends: [C], whether each tag may end a sentence.
    """

    starts: list[bool]
    follows: list[list[bool]]
    ends: list[bool]


class _Tag(NamedTuple):
    goes_on: bool  # requires a preceding word of the same span
    is_open: bool  # requires a following word of the same span
    place: str  # B, I, E or S; empty outside of spans
    kind: str


def tag_rules(labels: Sequence[str]) -> TagRules:
    """Returns the transition rules of IOB2 or IOBES (BIOES) tags.

    I-X and E-X may only follow B-X or I-X.  If there is an E-X, it must close every span that B-X
    opens.  Kinds without B-X, O and tags of other forms are unrestricted.  These rules do not hold
    for IOB1, which uses B-X only between adjacent spans.

    Args:
      labels: the names of the tags, in id order.
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
