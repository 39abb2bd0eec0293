"""Word tags: schemes of span tags, their spans and their transition rules."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

UNKNOWN_TAG = "B-<unknown>"
"""Placeholder for a tag without a name: a span that is equal to no other."""

SCHEME_TAG = re.compile(r"O|[BIESMLU][-_]\S+")
"""A tag of a scheme of spans, such as O, B-PER and I-PER."""


class TagSpan(NamedTuple):
    """A span of words of one kind, from `first` to `last` inclusive."""

    first: int
    last: int
    kind: str


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
    role: str  # of ROLES, or O; empty for a tag that is no span tag
    kind: str


ROLES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
"""Letters of all schemes, with their meaning: B begins a span of several words, I continues it, E
ends it, S is a span of one word.  IO, IOB1, IOB2 (BIO), IOE, IOBES (BIOES), BMES, BMEWO, BILOU."""

_MARKS = ("B-", "I-", "E-", "S-")
_FORMS = (("-", False), ("-", True), ("_", False), ("_", True), ("", False))
_ALONE = "_"  # the kind of spans whose tags are letters alone, as in seqeval
_ALONE_SETS = ("BI", "BIE", "BIES", "BMES", "BMEW", "BILU")  # S, M and B alone may be sizes
_OUTSIDE = re.compile(r"O|(BB|MM|EE|WW)[-_]O([-_].*)?")  # and those of LingPipe's BMEWO+


class TagScheme(NamedTuple):
    """A way to write spans as tags of words: letters and kinds, such as B-city.

    A tag that it does not cover is a kind of its own, except O.

    Attributes:
      letters: its letters, keys of `ROLES` in upper or lower case; "" if tags mark no spans.
      separator: between the letter and the kind; "" if tags are letters without a kind.
      is_suffix: True if the letter is last, as in city-B.
      note: reason why tags that look like a scheme are none.
    """

    letters: str
    separator: str = "-"
    is_suffix: bool = False
    note: str = ""

    def __str__(self) -> str:
        if not self.letters:
            return f"each is a kind of its own{self.note and f' ({self.note})'}"
        if not self.separator:
            return f"spans by the letters {', '.join(self.letters)}"
        shown = [
            f"{self.separator}{one}" if self.is_suffix else f"{one}{self.separator}"
            for one in self.letters
        ]
        return f"spans by {', '.join(shown)}"

    def tag(self, label: str) -> _Tag:
        """Returns the role and the kind of a label."""
        if label == UNKNOWN_TAG:
            return _Tag("B", label[2:])
        if _OUTSIDE.fullmatch(label.upper() if self.letters.islower() else label):
            return _Tag("O", "")
        if not self.separator:
            letter, kind = label, _ALONE
        elif self.is_suffix:
            kind, _, letter = label.rpartition(self.separator)
        else:
            letter, _, kind = label.partition(self.separator)
        if kind and len(letter) == 1 and letter in self.letters:
            return _Tag(ROLES[letter.upper()], kind)
        return _Tag("", label)

    def spans(self, tags: Sequence[str]) -> list[TagSpan]:
        """Returns the spans of the tags of a sentence, following the conlleval script.

        A span begins at a B or S, and at an I or E after another kind, after O, or after the end
        of a span (E, S); so both IOB1 and IOB2 are supported.
        Tjong Kim Sang and Buchholz 2000, "Introduction to the CoNLL-2000 shared task".
        """
        spans: list[TagSpan] = []
        first, kind, ended = -1, "", True
        for place, tag in enumerate(tags):
            role, own = self.tag(tag)
            goes_on = role in ("", "I", "E") and own == kind and not ended
            if not goes_on:
                if first >= 0:
                    spans.append(TagSpan(first, place - 1, kind))
                first, kind = (-1, "") if role == "O" else (place, own)
            ended = role in ("O", "E", "S")
        if first >= 0:
            spans.append(TagSpan(first, len(tags) - 1, kind))
        return spans

    def rules(self, labels: Sequence[str]) -> TagRules:
        """Returns the transition rules of labels, in id order.

        I and E may only follow B or I of their kind.  If a kind has an E, it must close every span
        that its B opens.  Kinds without B, O and other tags are unrestricted.  These rules do not
        hold for IOB1, which uses B only between adjacent spans.
        """
        tags = [self.tag(label) for label in labels]
        opened = {tag.kind for tag in tags if tag.role == "B"}
        closed = {tag.kind for tag in tags if tag.role == "E"} & opened
        goes_on = [tag.role in ("I", "E") and tag.kind in opened for tag in tags]
        is_open = [tag.role in ("B", "I") and tag.kind in closed for tag in tags]
        return TagRules(
            starts=[not one for one in goes_on],
            follows=[
                [
                    before.role in ("B", "I") and before.kind == tag.kind if bound else not still
                    for tag, bound in zip(tags, goes_on, strict=True)
                ]
                for before, still in zip(tags, is_open, strict=True)
            ],
            ends=[not one for one in is_open],
        )


def scheme_of(labels: Sequence[str]) -> TagScheme:
    """Returns the scheme of all labels of a data set.

    A scheme explains more labels than it leaves over: each is O, or a letter with a kind.  Some
    kind has a B and a tag that continues it; or all labels are explained, one is O and a letter is
    B or I.  A letter as a suffix may mean anything else, and needs O or another kind beside that;
    letters without a kind are a whole set, such as BIO or BMES.  If no scheme is found, or several,
    a label such as B-x is that of IOBES, whatever stands beside it.
    """
    return _scheme_of(tuple(labels))


@functools.lru_cache(maxsize=256)
def _scheme_of(labels: tuple[str, ...]) -> TagScheme:
    found = [
        scheme
        for separator, is_suffix in _FORMS
        if (scheme := _read(labels, separator, is_suffix=is_suffix)) is not None
    ]
    if len(found) == 1 or (found and found[0][1:3] == ("-", False)):
        return found[0]
    if used := {label[0] for label in labels if label.startswith(_MARKS)}:
        b_kinds = {label[2:] for label in labels if label.startswith("B-")}
        used |= {one[0] for one in labels if one[1:2] == "-" and one[2:] in b_kinds}
        return TagScheme("".join(one for one in ROLES if one in used))
    note = " or ".join(map(str, found))
    return TagScheme("", note=note and f"they could be {note}")


def _read(labels: Sequence[str], separator: str, *, is_suffix: bool) -> TagScheme | None:
    """Returns the scheme of this form, in capital or small letters, if the labels are of it."""
    for every in ("".join(ROLES), "".join(ROLES).lower()):
        scheme = TagScheme(every, separator, is_suffix)
        tags = {label: scheme.tag(label) for label in labels if label != UNKNOWN_TAG}
        roles = {(tag.kind, tag.role) for tag in tags.values() if tag.role}
        spans = {label: tag.kind for label, tag in tags.items() if tag.role not in ("", "O")}
        b_kinds = {kind for kind, role in roles if role == "B"}
        others = [label for label, tag in tags.items() if not tag.role]
        used = {
            label[-1 if is_suffix else 0]
            for label, kind in spans.items()
            if kind in b_kinds or not others
        }
        letters = "".join(one for one in every if one in used)
        is_paired = any({(kind, "I"), (kind, "E")} & roles for kind in b_kinds)
        has_outside = ("", "O") in roles
        is_bare = not others and has_outside and {"B", "I"} & {*letters.upper()}
        support = is_paired + has_outside + (len({*spans.values()}) > 1)
        is_form = (is_paired or is_bare) and support > is_suffix and len(spans) > len(others)
        if is_form if separator else not others and letters.upper() in _ALONE_SETS:
            return scheme._replace(letters=letters)
    return None
