"""The contract of what encodes texts in a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from t2t_torch.export.field_text import FieldText
from t2t_torch.export.rows import Rows


class WordIds(NamedTuple):
    """The ids of words.

    Attributes:
      ids: of the words one after another.
      starts: for each word, the place of its first id.
    """

    ids: Rows
    starts: Rows


class Spelling(NamedTuple):
    """What texts are written with.

    Attributes:
      ids: of characters or bytes, [B, L] int64.
      between: [B, L] bool, which are of no word: spaces, and what fills rows up.
    """

    ids: str
    between: str


class EncoderGraph(ABC):
    """Does in a graph what a `TextEncoder` does in Python."""

    @abstractmethod
    def of_texts(self, field: FieldText) -> Rows:
        """Returns the ids of each text, without `EOS`: `TextEncoder.encode_batch`."""

    @abstractmethod
    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words: `TextEncoder.encode_words`."""
