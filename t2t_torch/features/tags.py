"""A label for each word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features.feature import IGNORED, UNKNOWN, Feature
from t2t_torch.text.label import ClassLabelEncoder


@dataclass(frozen=True)
class Tags(Feature):
    """A label for each word of a text; `[B, W]` in a batch, filled up with `IGNORED`.

    Attributes:
      encoder: between labels and ids from 0.
      of: the feature of words.
      allow_unknown: whether a label that is not among them becomes `UNKNOWN`, as labels that only
        the evaluation data has; else it is an error.
    """

    encoder: ClassLabelEncoder
    of: str = "inputs"
    allow_unknown: bool = False

    @property
    def arrow_type(self) -> str:
        """A list of 32-bit integers."""
        return "list<int32>"

    @property
    def vocab_size(self) -> int:
        """The number of labels."""
        return self.encoder.vocab_size

    @property
    def padding(self) -> int:
        """`IGNORED`."""
        return IGNORED

    @property
    def lowest_id(self) -> int:
        """`UNKNOWN`, if it may be."""
        return UNKNOWN if self.allow_unknown else 0

    @property
    def aligned_to(self) -> str:
        """The feature of words."""
        return self.of

    def encode(self, value: Any) -> list[int]:
        """Returns the ids of a list of labels, or of labels separated by spaces."""
        labels: Sequence[str] = value.split() if isinstance(value, str) else value
        if not labels:
            raise DataError("no labels, where one for each word was expected.")
        encode, unknown = self.encoder.encode, self.allow_unknown
        return [encode(label, allow_unknown=unknown) for label in labels]

    def decode(self, ids: Iterable[int]) -> list[str | None]:
        """Returns the labels; None where one is unknown."""
        known = (int(i) for i in ids)
        return [self.encoder.decode(i) if i >= 0 else None for i in known if i != IGNORED]
