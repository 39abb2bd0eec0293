"""The part of a text that answers a question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature

NO_SPAN = -1
"""What stands for both ends where the text has no answer."""


@dataclass(frozen=True)
class Span(Feature):
    """The numbers of the first and the last word of an answer; `[B, 2]` in a batch.

    Attributes:
      of: the feature of words that it is a part of.
    """

    of: str = "context"

    @property
    def arrow_type(self) -> str:
        """A list of two 32-bit integers."""
        return "list<int32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Two places."""
        return (2,)

    def encode(self, value: Any) -> list[int]:
        """Returns (first, last) as it is, or `NO_SPAN` twice for None.

        Raises:
          DataError: the last word is before the first.
        """
        if value is None:
            return [NO_SPAN, NO_SPAN]
        first, last = (int(place) for place in value)
        if not 0 <= first <= last:
            raise DataError(f"{value!r} is no span: first and last word, from 0, were expected.")
        return [first, last]

    def decode(self, ids: Iterable[int]) -> tuple[int, int] | None:
        """Returns (first, last); None if there is no answer."""
        first, last = (int(place) for place in ids)
        return None if first == NO_SPAN else (first, last)
