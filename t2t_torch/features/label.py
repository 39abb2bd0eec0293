"""Features of labels: classes, tags, answer spans, positions of documents."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.features.feature import IGNORED, UNKNOWN, Feature, OutputKind
from t2t_torch.text.encoder import ClassLabelEncoder

_SUM_TOLERANCE = 1e-3  # tolerance of the sum of probabilities


class _Classes(Feature):
    """Base class of features with named classes.

    Attributes:
      encoder: converts between labels and ids from 0.
    """

    encoder: ClassLabelEncoder

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, in the order of their ids."""
        return self.encoder.labels


class _NumberOfEach(_Classes):
    """Base class of features with a number for each class."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each class."""
        return (self.encoder.vocab_size,)


class _OneClass(_Classes):
    """Base class of features with one class for each example."""

    arrow_type: ClassVar[str] = "list<int32>"
    shape: ClassVar[tuple[int | None, ...]] = ()
    padding: ClassVar[int] = IGNORED


class _OneLabel(_Classes):
    """Base class of features of which each item is one label, `UNKNOWN` if that may be."""

    classifies: ClassVar[bool] = True

    allow_unknown: bool

    @property
    def vocab_size(self) -> int:
        """The number of labels."""
        return self.encoder.vocab_size


@dataclass(frozen=True)
class ClassLabel(_OneLabel, _OneClass):
    """A class label; `[B]` in a batch.

    Attributes:
      encoder: converts between labels and ids from 0.
      allow_unknown: True to encode unknown labels, such as those of evaluation data only, as
        `UNKNOWN`; False: they are an error.
    """

    output_kind: ClassVar[OutputKind] = "class"

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    def encode(self, value: Any) -> list[int]:
        """Returns the id of a label."""
        return [self.encoder.encode(str(value), allow_unknown=self.allow_unknown)]

    def decode(self, ids: Iterable[int]) -> str | None:
        """Returns the label; None if it is unknown."""
        identity = next(int(i) for i in ids)
        return None if identity < 0 else self.encoder.decode(identity)


@dataclass(frozen=True)
class MultiLabel(_NumberOfEach):
    """Any number of class labels, or none; `[B, C]` of 0 and 1 in a batch.

    Attributes:
      encoder: converts between labels and their indices in a row.
      allow_unknown: True to omit unknown labels; False: they are an error.
    """

    output_kind: ClassVar[OutputKind] = "multilabel"
    arrow_type: ClassVar[str] = "list<uint8>"

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    def encode(self, value: Any) -> list[int]:
        """Returns 1 at the indices of the labels, 0 elsewhere."""
        if isinstance(value, str):
            raise DataError(f"{value!r} is one label, where a list of labels was expected.")
        row = [0] * self.encoder.vocab_size
        for label in value:
            identity = self.encoder.encode(str(label), allow_unknown=self.allow_unknown)
            if identity != UNKNOWN:
                row[identity] = 1
        return row

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the labels, in the order of the classes."""
        return [label for label, there in zip(self.encoder.labels, ids, strict=True) if there]


@dataclass(frozen=True)
class SoftLabel(_NumberOfEach):
    """A probability for each class, such as a teacher's; `[B, C]` in a batch.

    Attributes:
      encoder: the classes.
    """

    output_kind: ClassVar[OutputKind] = "distribution"
    arrow_type: ClassVar[str] = "list<float32>"

    encoder: ClassLabelEncoder

    def encode(self, value: Any) -> list[float]:
        """Returns the probabilities of a mapping by label, or of a list in the order of classes.

        Raises:
          DataError: a label is unknown, or the numbers are not a distribution over the classes.
        """
        row = [0.0] * self.encoder.vocab_size
        if isinstance(value, Mapping):
            for label, probability in value.items():
                row[self.encoder.encode(str(label))] = float(probability)
        else:
            row = [float(probability) for probability in value]
        good = len(row) == self.encoder.vocab_size and min(row) >= 0
        if not good or not math.isclose(sum(row), 1.0, abs_tol=_SUM_TOLERANCE):
            raise DataError(
                f"{value!r} is no distribution over {self.encoder.vocab_size} classes: as many "
                "numbers, none below 0, with the sum 1, were expected."
            )
        return row

    def decode(self, ids: Iterable[float]) -> dict[str, float]:
        """Returns the probability of each label."""
        return dict(zip(self.encoder.labels, map(float, ids), strict=True))


@dataclass(frozen=True)
class Choice(_OneClass):
    """Index of the correct one of several inputs; `[B]` in a batch.

    Attributes:
      candidates: names of the inputs.
    """

    output_kind: ClassVar[OutputKind] = "choice"

    candidates: Sequence[str]

    @property
    def vocab_size(self) -> int:
        """The number of candidates."""
        return len(self.candidates)

    def encode(self, value: Any) -> list[int]:
        """Returns the index of a candidate's name."""
        if value not in self.candidates:
            raise DataError(f"{value!r} is no candidate; those are {list(self.candidates)}.")
        return [list(self.candidates).index(value)]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the candidate's name."""
        return self.candidates[next(int(i) for i in ids)]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the candidates."""
        return tuple(self.candidates)


@dataclass(frozen=True)
class Tags(_OneLabel):
    """A label for each word of a text; `[B, W]` in a batch, padded with `IGNORED`.

    Attributes:
      encoder: converts between labels and ids from 0.
      of: name of the word feature.
      allow_unknown: True to encode unknown labels, such as those of evaluation data only, as
        `UNKNOWN`; False: they are an error.
    """

    output_kind: ClassVar[OutputKind] = "tags"
    arrow_type: ClassVar[str] = "list<int32>"
    padding: ClassVar[int] = IGNORED

    encoder: ClassLabelEncoder
    of: str = "inputs"
    allow_unknown: bool = False

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


NO_SPAN = -1
"""What stands for both ends where the text has no answer."""


@dataclass(frozen=True)
class Span(Feature):
    """Indices of the first and the last word of an answer; `[B, 2]` in a batch.

    Attributes:
      of: name of the feature of words.
    """

    output_kind: ClassVar[OutputKind] = "span"
    arrow_type: ClassVar[str] = "list<int32>"
    shape: ClassVar[tuple[int | None, ...]] = (2,)

    of: str = "context"

    def encode(self, value: Any) -> list[int]:
        """Returns (first, last) unchanged, or `NO_SPAN` twice for None.

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

    @property
    def refers_to(self) -> str:
        """The feature of words."""
        return self.of


@dataclass(frozen=True)
class QueryId(Feature):
    """Identifies the query of a document by a hash of its text; `[B]` int64 in a batch.

    An annotation by which metrics group the documents of a query across batches.
    """

    arrow_type: ClassVar[str] = "list<int64>"
    shape: ClassVar[tuple[int | None, ...]] = ()
    source: ClassVar[str] = "query"

    def encode(self, value: Any) -> list[int]:
        """Returns 53 bits of the hash: float64 holds them."""
        return [int.from_bytes(hashlib.blake2b(str(value).encode(), digest_size=8).digest()) >> 11]

    def decode(self, ids: Iterable[int]) -> int:
        """Returns the hash."""
        return next(int(i) for i in ids)
