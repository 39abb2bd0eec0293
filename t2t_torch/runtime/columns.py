"""Rows of named columns, as tables have them, in place of inputs by field.

Models in Python, artifacts, the decoder and the server read rows with `InputColumns`.  A table is
a pandas or polars DataFrame, a pyarrow Table, or, if all fields are texts, a mapping of columns to
lists.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t2t_torch.errors import DecodeError

WRITTEN_LIST = "[]"
"""Separator of lists in Python or JSON notation."""

_BETWEEN = " + "  # between the names of columns that are joined, in `Problem.column_names`


def parts_of(text: str, separator: str) -> list[Any]:
    """Returns the parts of a list in string form.

    Raises:
      ValueError: the separator is `WRITTEN_LIST`, and the string is no such list.
    """
    if separator != WRITTEN_LIST:
        return text.split(separator)
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple):
            return list(found)
    raise ValueError(f"{text[:80]!r} is no list as Python or JSON writes it")


def text_of_cell(value: Any) -> str:
    """Returns a value as text: "" for none, words joined by spaces.

    Raises:
      ValueError: the value is no text, number or list of texts.
    """
    if isinstance(value, str):
        return value
    if is_empty(value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.number):
        return str(value)
    held = list_of(value)
    if held is not None and all(isinstance(part, str) for part in held):
        return " ".join(held)
    raise ValueError(f"{str(value)[:80]!r} is no text")


def list_of(value: Any) -> list[Any] | None:
    """Returns a list, tuple or array as a list; None for anything else."""
    if hasattr(value, "tolist") and hasattr(value, "__len__"):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple) else None


def is_empty(value: Any) -> bool:
    """Returns whether a cell has no value: None, or NaN and NaT of data frames."""
    return value is None or (not hasattr(value, "__len__") and bool(value != value))


def rows_of(inputs: Any) -> list[dict[str, Any]] | None:
    """Returns the rows of a table; None if the inputs are no data frame and no Arrow table."""
    if hasattr(inputs, "to_pylist") and hasattr(inputs, "column_names"):  # pyarrow
        names, columns = inputs.column_names, [one.to_pylist() for one in inputs.columns]
    elif hasattr(inputs, "to_dicts") and hasattr(inputs, "columns"):  # polars
        names, columns = list(inputs.columns), [one.to_list() for one in inputs.iter_columns()]
    elif hasattr(inputs, "iloc") and hasattr(inputs, "columns"):  # pandas
        names = list(map(str, inputs.columns))
        columns = [inputs.iloc[:, place].tolist() for place in range(len(names))]
    else:
        return None
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DecodeError(f"the table has several columns {twice[0]!r}. Rename all but one.")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class InputColumns:
    """The columns of a problem's fields.

    Attributes:
      problem: full name of the problem, for error messages.
      kinds: by field of an input, the `InputSpec.kind` of its values.
      names: by field, the user's name of its column; " + " stands between several.
      forms: by field, the "column", "join" and "split" of its declaration, if `names` do not
        determine them.
    """

    problem: str
    kinds: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} (column {own!r})" if (own := self.names.get(name, name)) != name else name
            for name in self.kinds
        )

    def samples(self, inputs: Any) -> list[Any]:
        """Returns the rows of a table, and mappings of a list, by field; other inputs unchanged.

        Raises:
          DecodeError: a table lacks a column, or a value is not of its field's kind.
        """
        rows = rows_of(inputs)
        if rows is None and isinstance(inputs, Mapping):
            rows = self._rows_of_lists(inputs)
        if rows is not None:
            return [self.sample(row, number, is_row=True) for number, row in enumerate(rows)]
        return [
            self.sample(one, number) if isinstance(one, Mapping) else one
            for number, one in enumerate(inputs)
        ]

    def sample(
        self, row: Mapping[str, Any], number: int | str = 0, *, is_row: bool = False
    ) -> Mapping[str, Any]:
        """Returns a row with the values of its columns under the names of their fields.

        Args:
          row: values by column, or by field.
          number: number of the row, or its place, for error messages.
          is_row: True for a row of a table: all fields must be there, and cells may be empty.

        Raises:
          DecodeError: a value is not of its field's kind, or a table lacks a column.
        """
        found: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            columns = self._found(name, row)
            if columns is None or (columns == (name,) and not is_row):
                continue  # missing, or as the caller wrote it
            try:
                found[name] = self._value(name, kind, [row[column] for column in columns])
            except (ValueError, TypeError) as error:
                place = number if isinstance(number, str) else f"input {number}"
                raise DecodeError(f"{place}, column {columns[0]!r}: {error}.") from None
        if is_row and self.lacks(row):
            raise DecodeError(self.expected(row))
        return {**row, **found} if found else row

    def _found(self, name: str, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Returns the columns of a row that hold a field."""
        ways = (self.columns(name), (self.names.get(name, name),), (name,))
        return next((way for way in ways if all(one in row for one in way)), None)

    def lacks(self, row: Mapping[str, Any]) -> bool:
        """Returns True if a row has no column for some field."""
        return any(self._found(name, row) is None for name in self.kinds)

    def columns(self, name: str) -> tuple[str, ...]:
        """Returns the columns of a field."""
        own = self.names.get(name, name)
        if name in self.forms:
            return tuple(self.forms[name]["column"])
        return tuple(own.split(_BETWEEN))

    def expected(self, row: Mapping[str, Any]) -> str:
        """Returns the message for a row without the columns of all fields."""
        wanted = [column for name in self.kinds for column in self.columns(name)]
        return (
            f"the columns are {', '.join(map(repr, row)) or 'none'}; {self.problem!r} takes "
            f"{', '.join(map(repr, wanted))}. Name them so in the first row, or in the data frame."
        )

    def _rows_of_lists(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        columns = {name: list_of(held) for name, held in inputs.items()}
        lengths = {len(one) for one in columns.values() if one is not None}
        if None in columns.values() or len(lengths) != 1 or {*self.kinds.values()} != {"text"}:
            raise DecodeError(
                "inputs should be a list of mappings, not a mapping: predict([one]). A table is a "
                "data frame, or, for fields of text, a mapping of equally long lists."
            )
        values: list[Any] = list(columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def _value(self, name: str, kind: str, cells: Sequence[Any]) -> Any:
        """Returns the value of a field from the cells of its columns."""
        form = self.forms.get(name, {})
        if kind == "text":
            texts = [text_of_cell(cell) for cell in cells]
            return form.get("join", " ").join(filter(None, texts)) if texts[1:] else texts[0]
        if separator := form.get("split"):
            cells = [parts_of(one, separator) if isinstance(one, str) else one for one in cells]
        if kind == "numbers":
            parts = [one for cell in cells for one in (list_of(cell) or [cell])]
            numbers = [math.nan if is_empty(one) else float(one) for one in parts]
            if not all(map(math.isfinite, numbers)):
                raise ValueError(f"{parts} are no numbers")
            return numbers
        held = [list_of(cell) or ([] if is_empty(cell) else cell) for cell in cells]
        if len(held) == 1:
            return "" if is_empty(cells[0]) and kind in ("words", "labels") else held[0]
        return [one for part in held for one in (part if isinstance(part, list) else [part])]
