"""Rows of delimited text, following RFC 4180."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.text_file import (
    CONVERT_RETURNS,
    BadRecords,
    Numbered,
    Place,
    Record,
    TextFile,
    without_end,
)

MAX_LINES = 10_000
"""Maximum number of lines of a quoted field; a longer one is treated as an error."""

UNNAMED = "Unnamed: "
"""Prefix of the name of a column that the header does not name."""

_LINE_ENDS = ("", "\n", "\r\n")


COMMA_NUMBER = re.compile(r"\s*[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?\s*")
"""A number with a decimal comma, perhaps with points between thousands."""


BITEXT = " ||| "
"""Delimiter of aligned texts; the only one of several characters."""

_ESCAPED = re.compile(r"\\(?:([\"\\nt])|(\r?\n)$)")
_UNESCAPED = {'"': '""', "\\": "\\", "n": "\n", "t": "\t"}


class EscapedFile(TextFile):
    r"""The lines of a file in which a backslash marks quotes, instead of a second quote.

    The escapes `\"`, `\\`, `\n`, `\t` and a backslash at the end of a line are resolved.
    """

    def __next__(self) -> Numbered:
        if self._back:
            return self._back.popleft()
        number, line = super().__next__()
        return number, line and _ESCAPED.sub(lambda m: _UNESCAPED.get(m[1], m[2]), line)


class DelimitedRows:
    """The rows of a file, read in one pass.

    Args:
      path: the file, for messages.
      bad: policy for bad rows.
      delimiter: delimiter of fields.
      lines: the lines of the file.
      quoting: interpret quotes.
    """

    def __init__(
        self, path: Path, bad: BadRecords, delimiter: str, lines: TextFile, *, quoting: bool
    ) -> None:
        self._path = path
        self._bad = bad
        self._delimiter = delimiter
        self._quoting = quoting
        self._lines = lines
        self._names: tuple[str, ...] = ()  # unknown until the first row

    def records(
        self, columns: Sequence[str], *, header: bool, blank_rows: bool = False
    ) -> Iterator[Record]:
        """Yields the rows."""
        path, delimiter, quoting = self._path, self._delimiter, self._quoting
        if columns:
            self._names = self._checked(columns, UsageError)
        elif header:
            self._names = self._read_header()
        names, width = self._names, len(self._names)
        repeated = list(names) if header and not columns and width > 1 else None
        for number, line in self._lines:
            if line is None:
                continue
            if quoting and '"' in line:
                quoted = self._quoted(number, line)
                if quoted is None:
                    continue
                fields = quoted
            else:
                line = line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
                if not line and not (blank_rows and width == 1):
                    continue
                fields = line.split(delimiter)
            if not width:
                names = self._names = tuple(map(str, range(len(fields))))
                width = len(names)
            if len(fields) != width:
                self._report_width(number, line, fields)
                continue
            if fields == repeated:
                self._bad.report(Place(path, number), "this row repeats the header")
                continue
            yield Record(Place(path, number), dict(zip(names, fields, strict=True)))

    def _read_header(self) -> tuple[str, ...]:
        for number, line in self._lines:
            if line is None:
                raise DataError(f"The header is bad: {self._bad.listed[-1]}")
            if self._quoting and '"' in line:
                counted = self._bad.count
                fields = self._quoted(number, line)
                if fields is None:
                    assert self._bad.count > counted
                    raise DataError(f"The header is bad: {self._bad.listed[-1]}")
                return self._checked(fields, DataError)
            if without_end(line):
                return self._checked(without_end(line).split(self._delimiter), DataError)
        raise DataError(
            f"{self._path} is empty; a first row that names the columns was expected. If there is "
            "none, give the option columns with their names."
        )

    def _checked(
        self, names: Sequence[str], error: type[DataError] | type[UsageError]
    ) -> tuple[str, ...]:
        if error is DataError and any("\r" in name for name in names):
            raise DataError(f"{self._path}: the header holds carriage returns; {CONVERT_RETURNS}")
        if error is DataError and any(names):
            names = [name or f"{UNNAMED}{place}" for place, name in enumerate(names)]
        twice = [name for name, count in Counter(names).items() if count > 1 and name]
        unnamed = [str(i) for i, name in enumerate(names, 1) if not name]
        if twice or unnamed:
            faults = [f"name {', '.join(map(repr, twice))} more than once"] if twice else []
            faults += [f"have no name for column {', '.join(unnamed)}"] if unnamed else []
            raise error(
                f"{self._path}: the columns {' and '.join(faults)}. Each needs a name of its own: "
                "fix the first row, or give the option columns with the names if it is data."
            )
        return tuple(names)

    def _report_width(self, number: int, line: str, fields: Sequence[str]) -> None:
        width, column = len(self._names), None
        if not self._quoting or '"' not in line:
            kept = self._delimiter.join(fields[:width])
            column = len(kept) + (2 if len(fields) > width else 1)
        self._bad.report(Place(self._path, number, column), self._wrong_width(len(fields)))

    def _wrong_width(self, count: int, sign: str = "") -> str:
        names = ", ".join(self._names[:10]) + (", ..." if len(self._names) > 10 else "")
        fields = "field" if count == 1 else "fields"
        return f"{count}{sign} {fields}, where {len(self._names)} were expected ({names})"

    def _quoted(self, first: int, line: str) -> list[str] | None:
        """Returns the fields of a row with quotes; None if it is bad, which is reported."""
        taken: list[Numbered] = []
        fields: list[str] = []
        position, opened, fault = 0, None, ""
        delimiter, width = self._delimiter, len(self._names)
        while not fault:
            if width and len(fields) == width:
                opened = opened if taken else position
                fault = self._wrong_width(width + 1, " or more")
                break
            if not line.startswith('"', position):
                end = line.find(delimiter, position)
                if end < 0:
                    fields.append(without_end(line[position:]))
                    return fields
                fields.append(line[position:end])
                position = end + 1
                continue
            opened = opened if taken else position
            field, line, position, fault = self._quoted_field(line, position + 1, taken)
            if fault:
                break
            fields.append(field)
            if line.startswith(delimiter, position):
                position += 1
            elif line[position:] in _LINE_ENDS:
                return fields
            else:
                opened = opened if taken else position
                fault = "text after the closing quote, where a delimiter was expected"
        if taken:
            fault = f"the quote that opens here has no fitting end ({fault})"
        self._lines.push_back(taken)
        self._bad.report(Place(self._path, first, (opened or 0) + 1), fault)
        return None

    def _quoted_field(
        self, line: str, position: int, taken: list[Numbered]
    ) -> tuple[str, str, int, str]:
        """Reads a quoted field: returns the field, its last line, the next position, an error."""
        parts: list[str] = []
        while True:
            quote = line.find('"', position)
            if quote >= 0:
                if line.startswith('"', quote + 1):
                    parts.append(line[position : quote + 1])
                    position = quote + 2
                    continue
                parts.append(line[position:quote])
                return "".join(parts), line, quote + 1, ""
            parts.append(line[position:])
            following = next(self._lines, None)
            if following is None:
                return "", line, 0, "the file ends" if taken else "the quote is never closed"
            taken.append(following)
            if following[1] is None:
                return "", line, 0, f"line {following[0]} is bad"
            if len(taken) >= MAX_LINES:
                return "", line, 0, f"{MAX_LINES:,} lines without one"
            line, position = following[1], 0
