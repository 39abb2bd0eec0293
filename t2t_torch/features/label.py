"""Features of labels: classes, tags, answer spans, places of documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features.feature import IGNORED, UNKNOWN, Feature
from t2t_torch.text.encoder import ClassLabelEncoder

_SUM_TOLERANCE = 1e-3  # what a sum of probabilities may differ from 1


@dataclass(frozen=True)
class ClassLabel(Feature):
    """One of several classes; `[B]` in a batch.

    Attributes:
      encoder: between labels and ids from 0.
      allow_unknown: whether a label that is not among them becomes `UNKNOWN`, as labels that only
        the evaluation data has; else it is an error.
    """

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    @property
    def arrow_type(self) -> str:
        """A list of one 32-bit integer."""
        return "list<int32>"

    @property
    def vocab_size(self) -> int:
        """The number of classes."""
        return self.encoder.vocab_size

    @property
    def shape(self) -> tuple[int | None, ...]:
        """A single id."""
        return ()

    @property
    def padding(self) -> int:
        """`IGNORED`."""
        return IGNORED

    @property
    def lowest_id(self) -> int:
        """`UNKNOWN`, if it may be."""
        return UNKNOWN if self.allow_unknown else 0

    def encode(self, value: Any) -> list[int]:
        """Returns the id of a label."""
        return [self.encoder.encode(str(value), allow_unknown=self.allow_unknown)]

    def decode(self, ids: Iterable[int]) -> str | None:
        """Returns the label; None if it is unknown."""
        identity = next(int(i) for i in ids)
        return None if identity < 0 else self.encoder.decode(identity)


@dataclass(frozen=True)
class MultiLabel(Feature):
    """Any number of several classes, also none; `[B, C]` of 0 and 1 in a batch.

    Attributes:
      encoder: between labels and their places in a row.
      allow_unknown: whether a label that is not among them is left out; else it is an error.
    """

    encoder: ClassLabelEncoder
    allow_unknown: bool = False

    @property
    def arrow_type(self) -> str:
        """A list of a byte for each class."""
        return "list<uint8>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each class."""
        return (self.encoder.vocab_size,)

    def encode(self, value: Any) -> list[int]:
        """Returns 1 at the places of the labels, 0 elsewhere."""
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
class SoftLabel(Feature):
    """A probability for each class, such as a teacher's; `[B, C]` in a batch.

    Attributes:
      encoder: the classes.
    """

    encoder: ClassLabelEncoder

    @property
    def arrow_type(self) -> str:
        """A list of a number for each class."""
        return "list<float32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each class."""
        return (self.encoder.vocab_size,)

    def encode(self, value: Any) -> list[float]:
        """Returns the probabilities of a mapping by label, or of a list in the classes' order.

        Raises:
          DataError: a label is unknown, or the numbers are no distribution over the classes.
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
class Choice(Feature):
    """Which of several inputs is the right one; `[B]` in a batch.

    Attributes:
      candidates: the names of the inputs.
    """

    candidates: Sequence[str]

    @property
    def arrow_type(self) -> str:
        """A list of one 32-bit integer."""
        return "list<int32>"

    @property
    def vocab_size(self) -> int:
        """The number of candidates."""
        return len(self.candidates)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """A single id."""
        return ()

    @property
    def padding(self) -> int:
        """`IGNORED`."""
        return IGNORED

    def encode(self, value: Any) -> list[int]:
        """Returns the place of a candidate's name."""
        if value not in self.candidates:
            raise DataError(f"{value!r} is no candidate; those are {list(self.candidates)}.")
        return [list(self.candidates).index(value)]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the candidate's name."""
        return self.candidates[next(int(i) for i in ids)]


# A label for each word.


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


# The part of a text that answers a question.


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


# Which document of which query an example is.


@dataclass(frozen=True)
class Place(Feature):
    """The numbers of a query and of one of its documents, both from 0; `[B, 2]` in a batch.

    A note, by which metrics put the documents of a query together again, whatever batches they were
    in.

    Attributes:
      queries: of a split at most.
      documents: of a query at most.
    """

    queries: int
    documents: int

    @property
    def arrow_type(self) -> str:
        """A list of two 32-bit integers."""
        return "list<int32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Two numbers."""
        return (2,)

    @property
    def source(self) -> str:
        """The field "place"."""
        return "place"

    def encode(self, value: Any) -> list[int]:
        """Returns both numbers.

        Raises:
          DataError: there are more queries or documents than said.
        """
        query, document = (int(number) for number in value)
        if not (0 <= query < self.queries and 0 <= document < self.documents):
            raise DataError(
                f"document {document} of query {query}, counted from 0: the problem says that "
                f"there are {self.queries} queries of {self.documents} documents at most. Raise "
                "its max_queries or max_documents."
            )
        return [query, document]

    def decode(self, ids: Iterable[int]) -> list[int]:
        """Returns both numbers."""
        return [int(number) for number in ids]
