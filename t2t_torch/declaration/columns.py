"""Columns of a file, inferred from their values."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch.declaration.detect_format import DetectedFormat
from t2t_torch.declaration.rows import UnfitError, number_of, pieces
from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.runtime.prediction import WRITTEN_LIST
from t2t_torch.text.tree import parse_tree

MAX_ROWS = 50_000
"""Maximum number of inspected rows."""

_MAX_LABELS = 200
_SURE = 0.9  # minimum fraction of values that must agree
_FEW = 20  # maximum distinct integers of a label column
_DATE = re.compile(
    r"(?:[A-Za-z]{3,9},? )?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4})\.?(?:[T ,]+\d{1,2}:\d{2}.{0,24})?"
)
_MONEY = re.compile(
    r"[^\w\s]?\s?[+-]?\d{1,3}(?:[ .,']?\d{3})*(?:[.,]\d{1,2})?\s?(?:[^\w\s]|[A-Z]{3})?"
)
_QUANTITIES = (
    "price cost amount value salary income revenue sales score rating views votes likes count "
    "quantity weight length duration age size"
)
_ABOUT_ROWS = (
    "author authors user username profile date time timestamp datetime created updated modified "
    "published url link href email phone filename filepath"
)
LABEL_NAMES = (
    "label labels class category intent target queue sentiment emotion judgment topic tag type gold"
)
_FEW_NAMED = 20  # rows of which a column with a label's name may have different labels in all
_PARSED = 50  # values parsed to detect trees


@dataclass(frozen=True)
class Inspected:
    """An inspected column.

    Attributes:
      name: the column's name.
      rows: its value in each row; None if empty.
    """

    name: str
    rows: Sequence[Any]

    @functools.cached_property
    def values(self) -> Sequence[Any]:
        """The non-empty values, in order."""
        return [value for value in self.rows if value is not None]

    @property
    def empty(self) -> int:
        """The number of rows with an empty value."""
        return len(self.rows) - len(self.values)

    @property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len(self.counts)

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """The number of occurrences of each value, as text."""
        return Counter(map(str, self.values))

    @functools.cached_property
    def is_list(self) -> bool:
        """True if all values are lists of strings."""
        return bool(self.values) and all(
            isinstance(value, list) and all(isinstance(one, str) for one in value)
            for value in self.values
        )

    @functools.cached_property
    def is_plain(self) -> bool:
        """True if all values are strings or numbers."""
        return bool(self.values) and all(isinstance(v, str | int | float) for v in self.values)

    @functools.cached_property
    def mean_words(self) -> float:
        """The mean number of words per value."""
        return sum(len(str(value).split()) for value in self.values) / max(1, len(self.values))

    @functools.cached_property
    def is_number(self) -> bool:
        """True if all values are numbers, also as strings."""
        return self.is_plain and all(_number(value) is not None for value in self.values)

    @property
    def is_whole(self) -> bool:
        """True if all values are integers."""
        numbers = [_number(value) for value in self.values]
        return all(number is not None and number.is_integer() for number in numbers)

    @functools.cached_property
    def is_date(self) -> bool:
        """True if nearly all values are dates, with or without times."""
        return self._fit(_DATE)

    @functools.cached_property
    def is_money(self) -> bool:
        """True if nearly all values are amounts of money that are not plain numbers."""
        return not self.is_number and self._fit(_MONEY)

    def _fit(self, pattern: re.Pattern[str]) -> bool:
        if not self.is_plain:
            return False
        fitting = sum(n for value, n in self.counts.items() if pattern.fullmatch(value.strip()))
        return fitting >= _SURE * len(self.values)

    def is_named(self, names: str) -> bool:
        """Returns whether a word of the column's name is among some names."""
        spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()
        return not set(names.split()).isdisjoint(re.split(r"[\W_\d]+", spaced))

    @property
    def is_about_rows(self) -> bool:
        """True if the values or the name are metadata: when, where or by whom a row was written."""
        return self.is_date or self.is_named(_ABOUT_ROWS)

    @functools.cached_property
    def is_label(self) -> bool:
        """True if the values look like labels: few, short, and each repeated."""
        if not self.is_plain or self.is_date or self.distinct < 2 or self.mean_words > 6:
            return False
        if self.is_number:
            return self.is_whole and self.distinct <= _FEW and self.distinct * 2 <= len(self.values)
        few = self.distinct <= _MAX_LABELS and self.distinct * 2 <= len(self.values)
        return few and max(map(len, self.counts)) <= 60

    @functools.cached_property
    def is_named_label(self) -> bool:
        """True if the name is a label's, and the values may be labels, also of few rows."""
        if not self.is_plain or not self.is_named(LABEL_NAMES) or self.is_date:
            return False
        if self.is_number and not self.is_whole:
            return False
        short = max(map(len, self.counts)) <= 60 and self.mean_words <= 4
        few = self.distinct < 0.9 * len(self.values) and self.distinct <= _MAX_LABELS
        return short and (few or len(self.values) <= _FEW_NAMED)

    @functools.cached_property
    def is_text(self) -> bool:
        """True if the values look like texts."""
        several = self.mean_words >= 2 or self.distinct > _MAX_LABELS
        other = self.is_number or self.is_label or self.is_tree or self.is_date or self.is_money
        return self.is_plain and several and not other and not self.is_written_list

    @functools.cached_property
    def is_written_list(self) -> bool:
        """True if all values are lists of strings in Python or JSON notation."""
        if not self.is_plain or not all(str(v).strip().startswith("[") for v in self.counts):
            return False
        try:
            held = [one for value in self.counts for one in pieces(value, WRITTEN_LIST)]
        except UnfitError:
            return False
        return bool(held) and all(isinstance(one, str) for one in held)

    @functools.cached_property
    def is_code(self) -> bool:
        """True if all values are single ASCII words: names, addresses, codes."""
        return self.is_plain and all(v.isascii() and len(v.split()) == 1 for v in self.counts)

    @functools.cached_property
    def is_identity(self) -> bool:
        """True if the values only identify rows."""
        if self.is_named("unnamed"):
            return self.is_number
        named = self.is_named("id uuid guid index key")
        if not self.is_plain or self.distinct < len(self.values):
            return named and self.mean_words < 2 and not self.is_label
        if self.is_number and not named:
            return self.is_whole and not self.is_named(_QUANTITIES)
        return named or _codes(self.values)

    @functools.cached_property
    def is_tree(self) -> bool:
        """True if the values are bracketed trees."""
        first = self.values[:_PARSED]
        return self.is_plain and all(_is_tree(str(value)) for value in first)

    def parts(self) -> str | None:
        """The separator of labels, if the values look like several labels each."""
        if not self.is_plain or self.is_number:
            return None
        if self.is_written_list:
            return WRITTEN_LIST
        for mark in ("|", ";", ","):
            held = [str(value).split(mark) for value in self.values]
            several = sum(len(labels) > 1 for labels in held)
            kinds = {label.strip() for labels in held for label in labels}
            short = all(len(label.split()) <= 3 for label in kinds)
            fewer = len(kinds) < self.distinct or len(kinds) * 4 <= len(held)
            if several * 10 >= len(held) and short and fewer and 2 <= len(kinds) <= _MAX_LABELS:
                return mark
        return None


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file.

    Attributes:
      columns: by name.
      rows: number of inspected rows.
      bad: reasons why rows cannot be read.
      first: the first row's values.
    """

    columns: Mapping[str, Inspected]
    rows: int
    bad: BadRecords
    first: Mapping[str, Any]


def inspect(path: Path, detected: DetectedFormat) -> FileColumns:
    """Inspects the first `MAX_ROWS` rows of a file.

    Raises:
      DataError: the file cannot be read, or has no rows.
    """
    bad = BadRecords("skip")
    records = open_records(path, format=detected.format, bad=bad, options=detected.options)
    rows = [record.values for record in itertools.islice(records, MAX_ROWS)]
    if not rows:
        raise DataError(f"{path} has no row that can be read{_why(bad)}.")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _inspect(name, [row.get(name) for row in rows]) for name in names}
    return FileColumns(columns, len(rows), bad, rows[0])


def _inspect(name: str, values: Sequence[Any]) -> Inspected:
    lists = [value for value in values if isinstance(value, list)]
    if lists and all(len(one) == 1 and isinstance(one[0], str) for one in lists):
        named = Inspected(name, []).is_named(
            LABEL_NAMES
        )  # a list of one label, as Doccano writes it
        values = [one[0] if named and isinstance(one, list) else one for one in values]
    return Inspected(name, [None if _is_empty(value) else value for value in values])


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _why(bad: BadRecords) -> str:
    return f": {bad.listed[0]}" if bad.listed else ""


def _number(value: Any) -> float | None:
    try:
        return number_of(value)
    except UnfitError:
        return None


def _codes(values: Sequence[Any]) -> bool:
    """Returns whether all values are single words with digits."""
    return all(
        " " not in str(value) and any(character.isdigit() for character in str(value))
        for value in values
    )


def _is_tree(text: str) -> bool:
    if not text.lstrip().startswith(("[", "(")):
        return False
    try:
        return len(parse_tree(text).words) > 0
    except DataError:
        return False
