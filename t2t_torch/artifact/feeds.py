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
from t2t_torch.features.real import numbers_of
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.features.word import labels_of

_LETTERS = 5  # of a text count as a word, for the sizes of batches
_NO_LABEL = "�"  # stands for a label that cannot be known, as there is a space in it


@dataclasses.dataclass(frozen=True)
class Row:
    """An input, as the graph takes it.

    Attributes:
      values: by field: a text, words or labels with spaces between, numbers.
      words: by field of words, how many there are.
      length: of the longest field, about, in words.
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
                lengths.append(count)
                if field.kind in ("words", "labels"):
                    counts[field.name] = count
            self._check_lengths(sample, counts)
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        return Row(values, counts, max(lengths))

    def _check_lengths(self, sample: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        for field in self._fields:
            if field.kind == "labels" and counts[field.name] != counts[field.of]:
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
        """Returns the graph's inputs: strings [B], numbers [B, size]."""
        return {
            field.name: np.array(
                [row.values[field.name] for row in rows],
                dtype=np.float32 if field.kind == "numbers" else object,
            )
            for field in self._fields
        }


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
    labels = [label if _is_one(label) else _NO_LABEL for label in labels_of(given)]
    return " ".join(labels), len(labels)


def _is_one(label: str) -> bool:
    return label.split() == [label]
