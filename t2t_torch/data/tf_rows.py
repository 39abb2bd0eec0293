"""From tensor2tensor's records to rows of a problem's features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch.data import segments
from t2t_torch.data.ragged import Ragged, Rows, value_dtype
from t2t_torch.data.tf_example import Values, float_rows, int64_rows, parse_example
from t2t_torch.data.tfrecord import Records, read_records
from t2t_torch.errors import DataError

if TYPE_CHECKING:
    from t2t_torch.features import Feature

_OTHER_NAMES = {"targets": ("label",)}
"""What tensor2tensor calls a feature in some records."""

_PICTURES = "image/"
_POSITION = "_position"


class TfRows:
    """Reads records as rows of features, the ids as they are; examples that are packed come apart.

    Attributes:
      ignored: the names in the records that no feature is made of.

    Args:
      features: by name.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.ignored: set[str] = set()
        self._features = features

    def read(self, path: Path) -> Iterator[Rows]:
        """Yields the rows of a file in its order.

        Raises:
          DataError: the file is damaged, or a record has not what the features need; says which.
        """
        for records in read_records(path):
            try:
                rows = self._rows(records.contents)
            except ValueError as error:
                raise self._located(records, error) from error
            yield rows

    def _rows(self, contents: Sequence[bytes]) -> Rows:
        """The rows of some records; ValueError if one is not what was expected."""
        examples = [parse_example(content) for content in contents]
        names = set().union(*examples)
        packed = any(name.endswith(segments.SUFFIX) for name in names)
        rows = {}
        numbers = {}
        for name, feature in self._features.items():
            key = self._key(name, names)
            rows[name] = _column(examples, key, feature)
            if packed:
                numbers[name] = _integers(examples, key + segments.SUFFIX)
            names -= {key, key + segments.SUFFIX, key + _POSITION}
        self.ignored |= names
        return segments.separate(rows, numbers) if packed else rows

    def _key(self, name: str, names: set[str]) -> str:
        """What the records call a feature."""
        return next((key for key in (name, *_OTHER_NAMES.get(name, ())) if key in names), name)

    def _located(self, records: Records, error: ValueError) -> DataError:
        """The same error with the place of the first record that causes it."""
        place = f"{records.path}, records from {records.first} on"
        for index, content in enumerate(records.contents):
            try:
                self._rows([content])
            except ValueError as found:
                place, error = records.place(index), found
                break
        return DataError(f"{place}: {error}.")


def refuse_pictures(path: Path) -> None:
    """Raises DataError if the first record of a file holds a picture."""
    for records in read_records(path):
        try:
            names = sorted(parse_example(records.contents[0]))
        except ValueError:
            return  # said when it is read
        if pictures := [name for name in names if name.startswith(_PICTURES)]:
            raise DataError(
                f"{records.place(0)}: it holds {', '.join(pictures)}, and pictures are not taken "
                "over. Make the data anew with t2t-datagen."
            )
        return


def _column(examples: Sequence[Mapping[str, Values]], key: str, feature: Feature) -> Ragged:
    """The values of a feature, checked."""
    dtype = value_dtype(feature.arrow_type)
    if dtype.kind == "f":
        values = _lists(examples, key, "float")
        rows = float_rows([v.packed for v in values])
    else:
        rows = _integers(examples, key)
        _check_ids(rows, key, feature, dtype)
    _check_lengths(rows, key, feature)
    return Ragged(rows.values.astype(dtype), rows.offsets)


def _integers(examples: Sequence[Mapping[str, Values]], key: str) -> Ragged:
    return int64_rows([values.packed for values in _lists(examples, key, "int64")])


def _lists(examples: Sequence[Mapping[str, Values]], key: str, kind: str) -> list[Values]:
    found = []
    for example in examples:
        values = example.get(key)
        if values is None or values.is_empty:
            there = ", ".join(sorted(example)) or "nothing"
            raise ValueError(f"it has no {key!r}, which the problem needs; it has: {there}")
        if values.kind != kind:
            raise ValueError(f"{key!r} holds {values.kind}, where {kind} was expected")
        found.append(values)
    return found


def _check_ids(rows: Ragged, key: str, feature: Feature, dtype: np.dtype[Any]) -> None:
    size, low = feature.vocab_size, feature.lowest_id
    high = size - 1
    if not size:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if len(rows.values) and not low <= rows.values.min() <= rows.values.max() <= high:
        wrong = rows.values[(rows.values < low) | (rows.values > high)][0]
        of = f"the vocabulary has {size:,}" if size else f"{dtype} holds"
        raise ValueError(
            f"{key!r} holds the id {wrong}, and {of}: {low} to {high}. Is it the vocabulary that "
            "the records were made with?"
        )


def _check_lengths(rows: Ragged, key: str, feature: Feature) -> None:
    shape = feature.shape
    width = int(np.prod([size for size in shape if size is not None], dtype=np.int64))
    wrong = rows.lengths % width != 0 if feature.is_sequence else rows.lengths != width
    if wrong.any():
        expected = f"a multiple of {width}" if feature.is_sequence else f"{width}"
        raise ValueError(
            f"{key!r} has {rows.lengths[wrong][0]} values, where {expected} was expected"
        )
