"""Rows of fields: CSV and TSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import Numbered, TextFile, without_end

MAX_LINES = 10_000
"""A quote that is still open after so many lines is taken for a mistake."""

CONVERT_RETURNS = "only line feeds, or both together, end lines. Convert the file:  tr '\\r' '\\n'"
"""What is said of a file whose lines end with carriage returns alone."""

UNNAMED = "Unnamed: "
"""What the name of a column begins with that the header does not name."""

_LINE_ENDS = ("", "\n", "\r\n")


def read_csv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = ",",
    quoting: bool = True,
    header: bool = True,
    columns: Sequence[str] = (),
) -> Iterator[Record]:
    r"""Yields the rows of a CSV file, as RFC 4180 has it; the values are strings.

    A line ends with "\n" or "\r\n" (never with "\r" alone) and a blank line is no row.  A field
    that begins with a quote ends with the next single quote, and may hold the delimiter, line ends,
    which are kept as they are, and quotes, each written twice.  A quote elsewhere is a character
    like any other; so are spaces beside the delimiter.

    If the header leaves one column without a name, as data frames do with their index, its name is
    "Unnamed: " and its number from 0, as in pandas.

    A row with another number of fields than the header is bad, also one with text after the closing
    quote.  If such a row runs over several lines, or its quote is open after `MAX_LINES`, too many
    fields or at the file's end, then that quote is taken for a mistake: it is reported where it
    opened, and the next line is read as a new row.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad rows.
      delimiter: one character.
      quoting: whether quotes mean anything.
      header: whether the first row names the columns; else their names are "0", "1", ...
      columns: their names; then the first row is data.

    Raises:
      DataError: the file cannot be read, or the header is missing, bad, or names a column twice, or
        does not name several.
      UsageError: an option makes no sense.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(
            f"{delimiter!r} cannot delimit fields; one character, no quote and no line end, can."
        )
    return _Rows(path, bad, delimiter, quoting=quoting).records(columns, header=header)


def read_tsv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = "\t",
    quoting: bool = False,
    header: bool = True,
    columns: Sequence[str] = (),
) -> Iterator[Record]:
    """Yields the rows of a file with tabs between fields, as `read_csv` does.

    Quotes mean nothing unless `quoting` says so: there is no way to write a tab inside a field.
    """
    return read_csv(path, bad, delimiter=delimiter, quoting=quoting, header=header, columns=columns)


class _Rows:
    """The rows of one file, in one pass."""

    def __init__(self, path: Path, bad: BadRecords, delimiter: str, *, quoting: bool) -> None:
        self._path = path
        self._bad = bad
        self._delimiter = delimiter
        self._quoting = quoting
        self._lines = TextFile(path, bad)
        self._names: tuple[str, ...] = ()  # until the first row they are not known

    def records(self, columns: Sequence[str], *, header: bool) -> Iterator[Record]:
        """Yields the rows."""
        path, delimiter, quoting = self._path, self._delimiter, self._quoting
        if columns:
            self._names = self._checked(columns, UsageError)
        elif header:
            self._names = self._read_header()
        names, width = self._names, len(self._names)
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
                if not line:
                    continue
                fields = line.split(delimiter)
            if not width:
                names = self._names = tuple(map(str, range(len(fields))))
                width = len(names)
            if len(fields) != width:
                self._report_width(number, line, fields)
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
        if error is DataError and len(names) > 1 and list(names).count("") == 1:
            names = [name or f"{UNNAMED}{place}" for place, name in enumerate(names)]
        twice = [name for name, count in Counter(names).items() if count > 1 and name]
        unnamed = [str(i) for i, name in enumerate(names, 1) if not name]
        if twice or unnamed:
            faults = [f"name {', '.join(map(repr, twice))} more than once"] if twice else []
            faults += [f"have no name for column {', '.join(unnamed)}"] if unnamed else []
            raise error(
                f"{self._path}: the columns {' and '.join(faults)}. Each needs a name of its own: "
                "mend the first row, or give the option columns with the names if it is data."
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
        """Returns the fields of a row that holds quotes; None if it is bad, which is reported."""
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
        """Reads on after an opening quote: the field, its last line, where it goes on, a fault."""
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
