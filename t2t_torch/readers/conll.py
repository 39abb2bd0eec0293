"""Sentences as one word a line, with columns, and a blank line after each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import TextFile, split_at_blanks, without_end

DOCUMENT_START = "-DOCSTART-"
"""The word of a line that begins a document in CoNLL-2003."""

Row = tuple[int, list[str]]
"""The number of a line and its columns."""


def read_conll(
    path: Path,
    bad: BadRecords,
    *,
    columns: Sequence[str] = (),
    delimiter: str = "",
    skip_docstart: bool = False,
) -> Iterator[Record]:
    """Yields sentences as one list of strings for each column.

    A line of spaces and tabs alone is a blank one, and any number of them ends a sentence.  A
    sentence with a bad line is left out whole; bad is a line with another number of columns than
    the names, or than the file's first line if there are no names.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad sentences.
      columns: their names; "0", "1", ... if there are none.
      delimiter: one character between columns, such as a tab where words hold spaces; "" is any
        spaces and tabs.
      skip_docstart: whether lines that begin with `DOCUMENT_START` are left out.

    Raises:
      DataError: the file cannot be read.
      UsageError: an option makes no sense.
    """
    if len(delimiter) > 1 or delimiter in ("\n", "\r"):
        raise UsageError(f"{delimiter!r} cannot delimit columns; one character can.")
    if len(set(columns)) != len(columns) or "" in columns:
        raise UsageError(f"The columns {', '.join(columns)} need a name each, none of them twice.")
    return _sentences(path, bad, tuple(columns), delimiter, skip_docstart=skip_docstart)


def _sentences(
    path: Path, bad: BadRecords, names: tuple[str, ...], delimiter: str, *, skip_docstart: bool
) -> Iterator[Record]:
    for rows in _blocks(path, bad, delimiter, skip_docstart=skip_docstart):
        names = names or tuple(map(str, range(len(rows[0][1]))))
        width = len(names)
        uneven = next((row for row in rows if len(row[1]) != width), None)
        if uneven is None:
            number = rows[0][0]
            columns = map(list, zip(*(fields for _, fields in rows), strict=True))
            yield Record(Place(path, number), dict(zip(names, columns, strict=True)))
            continue
        number, fields = uneven
        why = f"{len(fields)} columns, where {width} were expected ({', '.join(names)})"
        between = delimiter or " "
        column = len(between.join(fields[:width])) + 1 + len(between) * (len(fields) > width)
        bad.report(Place(path, number, column), why)


def _blocks(
    path: Path, bad: BadRecords, delimiter: str, *, skip_docstart: bool
) -> Iterator[list[Row]]:
    """Yields the lines between blank ones; what holds a line that is no text is left out."""
    rows: list[Row] = []
    spoilt = False
    for number, line in TextFile(path, bad):
        if line is None:
            spoilt = True
        elif line.strip(" \t\r\n"):
            if not (skip_docstart and line.startswith(DOCUMENT_START)):
                text = without_end(line)
                rows.append((number, text.split(delimiter) if delimiter else split_at_blanks(text)))
        else:
            if rows and not spoilt:
                yield rows
            rows, spoilt = [], False
    if rows and not spoilt:
        yield rows
