"""From inputs to the tensors that a graph is given."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.artifact.answer import InputError
from t2t_torch.artifact.signature import Field
from t2t_torch.errors import DataError
from t2t_torch.features.image import pixels_of
from t2t_torch.features.real import numbers_of
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.features.word import entries_of_words, labels_of, numbers_of_words

WEIGHTS = "_weights"
"""Behind the name of a gazetteer's labels, the name of their weights."""

_OF_WORDS = ("labels", "word_numbers", "gazetteer")  # kinds with an entry for each word
_PIXELS = 64  # of a picture count as a word
_ENTRIES = 8  # of a word, as the one with the most has, make it count as another
_MOST_ENTRIES = 250_000  # of an input: each word has as much room as the one with the most
_LETTERS = 5  # of a text count as a word, for the sizes of batches
_NO_LABEL = "�"  # stands for a label that cannot be known, as there is a space in it


@dataclasses.dataclass(frozen=True)
class Row:
    """An input, as the graph takes it.

    Attributes:
      values: by field: a text, words or labels with spaces between, numbers, numbers or entries of
        each word, a picture.
      words: by field of words, or of what each word has, how many there are.
      length: of the longest field, about, in words; what gives words more room counts as more.
    """

    values: Mapping[str, Any]
    words: Mapping[str, int]
    length: int


class Feeds:
    """Checks inputs and makes tensors of them.

    Args:
      fields: of a signature.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields

    def row(self, number: int, sample: Mapping[str, Any]) -> Row:
        """Returns what stands for an input.

        Args:
          number: of the input, for errors.
          sample: has all fields.

        Raises:
          InputError: it cannot be encoded.
        """
        values: dict[str, Any] = {}
        counts: dict[str, int] = {}
        lengths = [1]
        try:
            for field in self._fields:
                values[field.name], count = _value(field, sample[field.name])
                lengths.append(count * _room(field, values[field.name]))
                if field.kind in ("words", *_OF_WORDS):
                    counts[field.name] = count
            self._check_lengths(sample, counts)
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        return Row(values, counts, max(lengths))

    def _check_lengths(self, sample: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        for field in self._fields:
            if field.kind in _OF_WORDS and counts[field.name] != counts[field.of]:
                raise DataError(
                    f"{counts[field.of]} words and {counts[field.name]} {field.name}, where one "
                    f"for each word was expected: {list(words_of(sample[field.of]))!r}, "
                    f"{reprlib.repr(sample[field.name])}."
                )
        for field in self._fields:
            if field.tagged and field.longest and counts[field.name] > field.longest:
                raise DataError(
                    f"{field.name!r} has {counts[field.name]} ids, and this model was trained on "
                    f"{field.longest} at most. Cut the text."
                )

    def batch(self, rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
        """Returns the graph's inputs, as `Field.dtype` says."""
        found: dict[str, npt.NDArray[Any]] = {}
        for field in self._fields:
            values = [row.values[field.name] for row in rows]
            if field.kind == "gazetteer":
                found |= _entries(field.name, values)
            elif field.kind == "word_numbers":
                found[field.name] = _filled(values, (field.size,))
            else:
                dtype = {"numbers": np.float32, "image": np.uint8}.get(field.kind, object)
                found[field.name] = np.array(values, dtype=dtype)
        return found


def _filled(rows: Sequence[Sequence[Any]], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Returns what words have, 0 behind each text's.  [B, W, *shape], of `shape` for each word."""
    found = np.zeros((len(rows), max(map(len, rows)), *shape), np.float32)
    for number, row in enumerate(rows):
        if row:
            found[number, : len(row)] = row
    return found


def _entries(name: str, rows: Sequence[Sequence[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Returns labels and weights of gazetteer entries, "" and 0 where there is none.  [B, W, E]."""
    width = max((len(entries) for row in rows for entries in row), default=0)
    shape = len(rows), max(map(len, rows)), width
    labels, weights = np.full(shape, "", object), np.zeros(shape, np.float64)
    for number, row in enumerate(rows):
        for word, entries in enumerate(row):
            for place, (label, weight) in enumerate(entries):
                labels[number, word, place] = label
                weights[number, word, place] = weight
    return {name: labels, f"{name}{WEIGHTS}": weights}


def _room(field: Field, value: Any) -> int:
    """Returns how many words a word of a field counts as, by what it has."""
    if field.kind != "gazetteer":
        return 1
    return max(1, -(-max(map(len, value), default=0) // _ENTRIES))


def _value(field: Field, given: Any) -> tuple[Any, int]:
    """Returns what stands for a field, and how many words it has, about.

    Raises:
      DataError: it is not of the field's kind.
    """
    if field.kind == "numbers":
        numbers = numbers_of(given)
        if len(numbers) != field.size:
            raise DataError(f"{given!r}: {len(numbers)} numbers; {field.size} were expected.")
        return numbers, 1
    if field.kind == "text":
        if not isinstance(given, str):
            raise DataError(f"{given!r} is no text, where one was expected.")
        return given, len(given) // _LETTERS + 1
    if field.kind == "words":
        words = words_of(given)
        check_whole(words)
        return " ".join(words), len(words)
    if field.kind == "word_numbers":
        rows = numbers_of_words(given, field.name, field.size)
        return rows, len(rows)
    if field.kind == "gazetteer":
        entries = [[one for one in row if _may_be_known(one[0])] for row in entries_of_words(given)]
        most = max(map(len, entries), default=0)
        if len(entries) * most > _MOST_ENTRIES:
            raise DataError(
                f"{field.name}: {len(entries)} words, of which one has {most} labels, are more "
                f"than the {_MOST_ENTRIES:,} that an artifact takes together. Leave out labels "
                "that the model does not know."
            )
        return entries, len(entries)
    if field.kind == "image":
        pixels = pixels_of(given, field.shape)
        return pixels, pixels.shape[0] * pixels.shape[1] // _PIXELS + 1
    labels = [label if _is_one(label) else _NO_LABEL for label in labels_of(given)]
    return " ".join(labels), len(labels)


def _is_one(label: str) -> bool:
    return label.split() == [label]


def _may_be_known(label: Any) -> bool:
    """Whether a graph can be given a label: those that no file of labels holds are left out."""
    if not isinstance(label, str) or not label:
        return False
    try:
        label.encode()
    except UnicodeEncodeError:
        return False
    return True
