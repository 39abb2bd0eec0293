"""Features of the words of a text, in addition to their ids."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec
from t2t_torch.features.real import example_numbers, num_channels, numbers_of
from t2t_torch.features.text import Words, list_of, words_of
from t2t_torch.text.encoder import ClassLabelEncoder, TextEncoder

UNKNOWN_LABEL = "<unknown>"
"""A label that is not in the training data."""

NUM_RESERVED = 1
"""Ids of word features start after 0, the padding."""


@dataclass(frozen=True)
class OfWords(Feature):
    """Base class of features with an entry for each word of another feature.

    Attributes:
      of: name of the word feature.
    """

    arrow_type: ClassVar[str] = "list<int32>"

    of: str

    @property
    def source(self) -> str | None:
        """The field of the words."""
        return self.of

    @property
    def aligned_to(self) -> str | None:
        """The feature of words."""
        return self.of

    def rows(self, numbers: Iterable[Any]) -> list[list[Any]]:
        """Returns the numbers of each word, for a fixed number of them."""
        flat, width = list(numbers), self.shape[1] or 1
        return [flat[start : start + width] for start in range(0, len(flat), width)]


class _OfField(OfWords):
    """Base class of features of words with values in a field of their own."""

    field: str

    @property
    def source(self) -> str:
        """The field."""
        return self.field


class _LabelIds(_OfField):
    """Base class of features whose ids are indices of labels + 1."""

    encoder: ClassLabelEncoder

    @property
    def vocab_size(self) -> int:
        """The labels, and padding."""
        return NUM_RESERVED + self.encoder.vocab_size


@dataclass(frozen=True)
class OriginalWords(OfWords):
    """The words of a text as UTF-8 bytes, if its ids do not decode to them; else empty.

    Attributes:
      words: the feature of words.
    """

    words: Words

    def encode(self, value: Any) -> list[int]:
        """Returns the bytes; DataError if the value has no ids as words."""
        words = list(words_of(value))
        if self.words.decode(self.words.encode(words)) == words:
            return []
        return list(" ".join(words).encode("utf-8", "surrogatepass"))

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the words; none if the ids of the text decode to them."""
        text = bytes(map(int, ids)).decode("utf-8", "surrogatepass")
        return text.split(" ") if text else []


@dataclass(frozen=True)
class WordStarts(OfWords):
    """Position of each word's first id among the ids of its text, from 0; `[B, W]`.

    If a word has several ids, its tags and other features belong to the first.

    Attributes:
      words: the feature itself.
    """

    starts_words: ClassVar[bool] = True

    words: Words

    def encode(self, value: Any) -> list[int]:
        """Returns the places."""
        return self.encode_batch([value])[0]

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the positions for each list of words."""
        return [
            list(itertools.accumulate(map(len, by_word[:-1]), initial=0)) if by_word else []
            for by_word in self.words.by_word(values)
        ]

    def decode(self, ids: Iterable[int]) -> list[int]:
        """Returns the places."""
        return [int(i) for i in ids]


@dataclass(frozen=True)
class WordCharacters(OfWords):
    """The first characters, or bytes, of each word; `[B, W, width]`, padded with 0.

    Attributes:
      encoder: encoder of characters or bytes (`text/encoder.py`).
      width: number of characters kept per word.
    """

    encoder: TextEncoder
    width: int = 20

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the encoder."""
        return self.encoder.vocab_size

    @property
    def shape(self) -> tuple[int | None, ...]:
        """`width` ids for each word."""
        return (None, self.width)

    def encode(self, value: Any) -> list[int]:
        """Returns the padded ids of each word."""
        flat: list[int] = []
        for ids in self.encoder.encode_batch(words_of(value)):
            flat += ids[: self.width]
            flat += [0] * (self.width - len(ids))
        return flat

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the kept characters of each word."""
        return [self.encoder.decode(row) for row in self.rows(map(int, ids)) if any(row)]


class Shape(enum.IntEnum):
    """Shape of a word; the ids of `WordShape`."""

    OTHER = 1
    LOWER = 2
    UPPER = 3
    CAPITALIZED = 4
    MIXED = 5
    NUMBER = 6
    WITH_DIGIT = 7


@dataclass(frozen=True)
class WordShape(OfWords):
    """Shape of each word: lower, upper or mixed case, digits; `[B, W]`."""

    vocab_size: ClassVar[int] = NUM_RESERVED + len(Shape)
    labels: ClassVar[tuple[str, ...]] = tuple(shape.name.lower() for shape in Shape)

    def encode(self, value: Any) -> list[int]:
        """Returns the shape of each word."""
        return [int(shape_of(word)) for word in words_of(value)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the names of the shapes."""
        return [Shape(int(i)).name for i in ids if i]


def shape_of(word: str) -> Shape:
    """Returns the shape of a word."""
    if word.isdecimal():
        return Shape.NUMBER
    if any(character.isdigit() for character in word):
        return Shape.WITH_DIGIT
    if word.islower():
        return Shape.LOWER
    if word.isupper():
        return Shape.UPPER if len(word) > 1 else Shape.CAPITALIZED
    if word[:1].isupper() and word[1:].islower():
        return Shape.CAPITALIZED
    return Shape.MIXED if any(character.isalpha() for character in word) else Shape.OTHER


@dataclass(frozen=True)
class WordLabel(_LabelIds):
    """An input label of each word, such as its part of speech; `[B, W]`, padded with 0.

    Attributes:
      encoder: converts between labels and indices; ids are indices + 1.
      field: field of a sample: a list of labels, or labels separated by spaces.
    """

    encoder: ClassLabelEncoder
    field: str = "tags"

    def encode(self, value: Any) -> list[int]:
        """Returns the ids of a list of labels; a label unknown to training becomes 0."""
        labels = labels_of(value)
        return [NUM_RESERVED + self.encoder.encode(x, allow_unknown=True) for x in labels]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the labels of the ids that have one."""
        return [self.encoder.decode(int(i) - NUM_RESERVED) for i in ids if i]

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns a label for each word."""
        return InputSpec(name, "labels", of=features.sources[self.of])

    def example(self, *, as_list: bool) -> Any:
        """Returns labels of two words."""
        return [self.encoder.labels[0]] * 2


def labels_of(value: Any) -> list[str]:
    """Returns a list of labels, or labels separated by spaces, as a list.

    Raises:
      DataError: it is neither.
    """
    labels = value.split() if isinstance(value, str) else list_of(value, "labels", "no text and ")
    for label in labels:
        if not isinstance(label, str):
            raise DataError(f"{label!r} among {labels!r} is no label: a text was expected.")
    return labels


@dataclass(frozen=True)
class Gazetteer(_LabelIds):
    """Entries of each word in word lists; `[B, W, width]` ids, padded with 0.

    A value is a list with a mapping of labels to weights for each word.  A `GazetteerWeights`
    feature of the same field has the weights; a word has as many entries as ids.

    Attributes:
      encoder: converts between labels and indices; ids are indices + 1.
      field: field of a sample.
      width: number of entries kept per word, those of greatest weight.
    """

    encoder: ClassLabelEncoder
    field: str = "gazetteer"
    width: int = 4

    @property
    def shape(self) -> tuple[int | None, ...]:
        """`width` ids for each word."""
        return (None, self.width)

    def encode(self, value: Any) -> Sequence[Any]:
        """Returns the ids of each word's labels, without labels unknown to training."""
        return [NUM_RESERVED + i if i >= 0 else 0 for i, _ in self._entries(value)]

    def _entries(self, value: Any) -> list[tuple[int, float]]:
        flat: list[tuple[int, float]] = []
        for entries in entries_of_words(value):
            encode = self.encoder.encode
            known = [(encode(label, allow_unknown=True), weight) for label, weight in entries]
            known = sorted((k for k in known if k[0] >= 0), key=lambda k: (-k[1], k[0]))
            row = known[: self.width]
            flat += row + [(-1, 0.0)] * (self.width - len(row))
        return flat

    def decode(self, ids: Iterable[Any]) -> list[list[str]]:
        """Returns the labels of each word, those of greatest weight first."""
        rows = self.rows(map(int, ids))
        return [[self.encoder.decode(i - NUM_RESERVED) for i in row if i] for row in rows]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the entries."""
        return self.encoder.labels

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns labels with weights for each word."""
        return InputSpec(name, "gazetteer", of=features.sources[self.of])

    def example(self, *, as_list: bool) -> Any:
        """Returns the entries of two words."""
        return [{self.encoder.labels[0]: 1.0}, {}]


def entries_of_words(value: Any) -> list[list[tuple[str, float]]]:
    """Returns the gazetteer labels of each word with their weights.

    Raises:
      DataError: the value is not a list of mappings of labels to weights, or one is not finite.
    """
    found = []
    for labels in list_of(value, "mappings of labels to weights, one for each word"):
        if not isinstance(labels, Mapping):
            raise DataError(f"{labels!r} is no mapping of gazetteer labels to weights.")
        entries = []
        for label, weight in labels.items():
            numbers = numbers_of(weight)
            if len(numbers) != 1:
                raise DataError(f"{weight!r} of {label!r} is no weight: a number was expected.")
            entries.append((label, numbers[0]))
        found.append(entries)
    return found


@dataclass(frozen=True)
class GazetteerWeights(Gazetteer):
    """Weights of the entries of a `Gazetteer`; `[B, W, width]`, 0 at padding."""

    arrow_type: ClassVar[str] = "list<float32>"
    vocab_size: ClassVar[int] = 0
    labels: ClassVar[tuple[str, ...]] = ()

    def encode(self, value: Any) -> Sequence[Any]:
        """Returns the weights of each word's labels, in the order of their ids."""
        return [weight for _, weight in self._entries(value)]

    def decode(self, ids: Iterable[Any]) -> list[list[Any]]:
        """Returns the weights of each word, the greatest first."""
        return self.rows(map(float, ids))


@dataclass(frozen=True)
class WordReal(_OfField):
    """A vector of numbers for each word, such as external embeddings; `[B, W, size]`.

    A value is a list with a list of numbers for each word.

    Attributes:
      size: number of numbers per word.
      field: field of a sample.
    """

    arrow_type: ClassVar[str] = "list<float32>"

    size: int = 1
    field: str = "word_dense"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """`size` numbers for each word."""
        return (None, self.size)

    def encode(self, value: Any) -> Sequence[Any]:
        """Returns the numbers of all words; DataError if a word does not have `size`."""
        return list(itertools.chain.from_iterable(numbers_of_words(value, self.field, self.size)))

    def decode(self, ids: Iterable[Any]) -> list[list[float]]:
        """Returns the numbers of each word."""
        return self.rows(map(float, ids))

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the specification of the numbers of a word."""
        of = features.sources[self.of]
        return InputSpec(name, "word_numbers", "float32", size=self.size, of=of)

    def example(self, *, as_list: bool) -> Any:
        """Returns the numbers of two words."""
        return [example_numbers(self.size)] * 2


num_channels.register(WordReal, lambda feature: feature.size)


def numbers_of_words(value: Any, field: str, size: int) -> list[list[float]]:
    """Returns the numbers of each word.

    Args:
      value: list with a list of numbers for each word.
      field: field of the sample, for errors.
      size: number of numbers per word.

    Raises:
      DataError: the value is not such a list.
    """
    rows = [numbers_of(row) for row in list_of(value, "lists of numbers, one for each word")]
    for row in rows:
        if len(row) != size:
            raise DataError(f"{field}: a word has {len(row)} numbers, where {size} were expected.")
    return rows
