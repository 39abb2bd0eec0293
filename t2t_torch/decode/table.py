"""Tables of rows as text: tab-separated, one row a line.

A cell is what `cell` makes of a value.  In it a tab, a line break, a carriage return and a
backslash are written `\\t`, `\\n`, `\\r` and `\\\\`, so a row is always one line; a cell with a
quotation mark is quoted as in CSV.  pandas reads it with `read_csv(path, sep="\\t",
keep_default_na=False)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def write_table(stream: TextIO, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Writes a header and rows, a line each; returns how many rows there were.

    Args:
      stream: what is written to.
      header: the names of the columns.
      rows: of as many values.
    """
    stream.write(line(header))
    count = 0
    for row in rows:
        stream.write(line(row))
        count += 1
    return count


def line(values: Iterable[Any]) -> str:
    """Returns the line of a row, with its end."""
    return "\t".join(map(_quoted, values)) + "\n"


def cell(value: Any) -> str:
    """Returns a value as text: nothing for None, 1 and 0 for what is true and false, numbers with
    six digits, lists and mappings as JSON.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return format(value, ".6g")
    if isinstance(value, str | int):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _quoted(value: Any) -> str:
    text = cell(value).translate(_ESCAPES)
    return '"' + text.replace('"', '""') + '"' if '"' in text else text
