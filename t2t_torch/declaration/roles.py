"""Texts of a table as inputs: one column, or several that are joined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from t2t_torch.declaration.columns import LABEL_NAMES, FileColumns, Inspected, overlap

TEXT_NAMES = "text body sentence content message utterance review comment tweet post inputs input"
_HEADING_NAMES = "title subject headline heading summary name"
_QUERY_NAMES = "question query claim"
_MAX_TEXTS = 6
_REPEATED = 0.6  # fraction of distinct values below which a text is rather a query than a heading
_MAX_LISTED = 5  # maximum column names listed in a message


class Body(NamedTuple):
    """The text of a sample.

    Attributes:
      column: the column, or a list of columns that are joined.
      score: how well it fits.
      reasons: facts that speak for it, as phrases.
      doubts: warnings, as sentences.
    """

    column: Any
    score: float
    reasons: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.column if isinstance(self.column, list) else [self.column]


def texts_of(table: FileColumns) -> list[Inspected]:
    """Returns the columns of texts in the order of the file; metadata only if there is no other."""
    every = [one for one in table if one.text >= 0.2]
    found = [one for one in every if one.name not in table.derived] or every
    kept = [one for one in found if not one.is_about_rows and one.boilerplate <= 0.5]
    found = kept or found
    best = max((one.text for one in found), default=0.0)
    named = [one for one in found if not (one.is_named(LABEL_NAMES) and one.label > 0.5)]
    texts = [one for one in named or found if one.text > 0.4 * best]
    if len(texts) <= _MAX_TEXTS:
        return texts
    likely = sorted(texts, key=lambda one: -one.text)[:_MAX_TEXTS]
    return [one for one in texts if one in likely]


def bodies(table: FileColumns) -> Iterator[Body]:
    """Yields the texts that may be classified: each column, and two or three joined."""
    texts = texts_of(table)
    for one in texts:
        others = [repr(other.name) for other in texts if other is not one]
        doubts = []
        if others:
            doubts.append(
                f"{one.name!r} is used as the text; {some(others)} could be joined to it with a "
                "list."
            )
        longest = max(texts, key=lambda other: other.mean_words)
        score = one.text * (0.9 if one is longest else 0.8) + 0.05 * one.is_named(TEXT_NAMES)
        reasons = [f"{one.name!r} holds texts of {one.mean_words:.0f} words"]
        yield Body(one.name, min(1.0, score), reasons, doubts)
    if len(texts) == 2:
        headings = [one for one in texts if is_heading(one, texts)]
        ordered = headings + [one for one in texts if one not in headings]
        names = [one.name for one in (ordered if len(headings) == 1 else texts)]
        message = f"{names[0]!r} and {names[1]!r} are joined to one text."
        score = min(one.text for one in texts) * (0.97 if len(headings) == 1 else 0.75)
        yield Body(names, score, [f"{names[0]!r} is a heading"] if headings else [], [message])


def is_heading(one: Inspected, texts: Sequence[Inspected]) -> bool:
    """Returns whether a text is the heading of another, by its name or its length."""
    if one.is_named(_HEADING_NAMES):
        return True
    others = [other for other in texts if other is not one]
    is_query = one.is_named(_QUERY_NAMES) or one.distinct <= _REPEATED * len(one.values)
    if is_query or any(_are_alike(one, other) for other in others):
        return False
    return one.mean_words * 3 < min((other.mean_words for other in others), default=0.0)


def pairs(table: FileColumns) -> Iterator[tuple[Inspected, Inspected, float]]:
    """Yields two texts that may be compared, and how well they fit as a pair.

    The texts of a pair are alike in name and length, and share more words than texts of other rows.
    """
    texts = texts_of(table)
    for n, first in enumerate(texts):
        for second in texts[n + 1 :]:
            score = min(first.text, second.text) * 0.75
            if _are_alike(first, second):
                score += 0.2
            elif first.is_named(_QUERY_NAMES) or second.is_named(_QUERY_NAMES):
                score += 0.15
            elif is_heading(first, [first, second]) or is_heading(second, [first, second]):
                score -= 0.2
            else:
                longer, shorter = sorted((first.mean_words, second.mean_words), reverse=True)
                score += 0.1 * (overlap(first, second) > 0.02) + 0.06 * (longer < 2 * shorter)
            yield first, second, max(0.0, min(1.0, score))


def _are_alike(one: Inspected, other: Inspected) -> bool:
    """Returns whether two names are those of a pair: sentence1 and sentence2, text_a and text_b."""
    if {one.name.lower(), other.name.lower()} == {"premise", "hypothesis"}:
        return True
    stems = [
        re.sub(r"[\W_\d]+|[ab]$|(?<=[\W_])[ab](?=[\W_])", "", n.name.lower()) for n in (one, other)
    ]
    return stems[0] == stems[1] != ""


def some(names: Sequence[str], between: str = ", ") -> str:
    """Returns the first names, and how many others there are."""
    if len(names) <= _MAX_LISTED + 1:
        return between.join(names)
    return f"{', '.join(names[:_MAX_LISTED])} and {len(names) - _MAX_LISTED} others"


def count(number: int, what: str) -> str:
    """Returns a number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
