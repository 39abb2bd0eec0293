"""Readers of delimited tables: CSV and TSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.readers import dialect
from t2t_torch.readers.delimited_rows import BITEXT, COMMA_NUMBER, DelimitedRows, EscapedFile
from t2t_torch.readers.text_file import BadRecords, Record, TextFile
from t2t_torch.registry import register_reader


@register_reader("csv", endings=(".csv",), matches=dialect.match_csv)
def read_csv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = ",",
    quoting: bool = True,
    escape: str = "",
    header: bool = True,
    columns: Sequence[str] = (),
    decimal: str = ".",
    encoding: str = "",
    blank_rows: bool = False,
) -> Iterator[Record]:
    r"""Yields the rows of a CSV file, following RFC 4180; the values are strings.

    A line ends with "\n" or "\r\n" (never with "\r" alone) and blank lines are skipped.  A field
    that begins with a quote ends with the next single quote, and may contain the delimiter, line
    breaks, which are kept unchanged, and quotes, each written twice.  A quote elsewhere is an
    ordinary character, and so are spaces next to the delimiter.

    A column that the header does not name, like the index of a data frame, has the name "Unnamed: "
    and its number from 0, as in pandas.  A row that repeats the header is bad.

    A row whose number of fields differs from the header is bad, and so is one with text after the
    closing quote.  If such a row spans several lines, or its quote is still open after `MAX_LINES`,
    too many fields or at the end of the file, that quote is treated as an error: it is reported
    where it opened, and the next line is read as a new row.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad rows.
      delimiter: one character, or " ||| " (without quotes).
      quoting: interpret quotes.
      escape: "\\" if a backslash marks quotes in quoted fields, as MySQL writes them; `\\n` and
        `\\t` are then resolved, too.
      header: the first row names the columns; otherwise their names are "0", "1", ...
      columns: names of the columns; the first row is then data.
      decimal: decimal mark of numbers; with ",", a field "1.234,5" becomes "1234.5".
      encoding: the file's, empty for UTF-8.
      blank_rows: read a blank line of a table of one column as an empty field.

    Raises:
      DataError: the file cannot be read, or the header is missing, bad, or has duplicate names.
      UsageError: an option is invalid.
    """
    if delimiter == BITEXT:
        quoting = False
    elif len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(
            f"{delimiter!r} cannot delimit fields; one character, no quote and no line end, can."
        )
    if decimal not in (".", ","):
        raise UsageError(f"{decimal!r} is no decimal mark; '.' and ',' are.")
    if escape not in ("", "\\"):
        raise UsageError(f"{escape!r} cannot escape quotes; a backslash can.")
    lines = (EscapedFile if escape else TextFile)(path, bad, encoding)
    made = DelimitedRows(path, bad, delimiter, lines, quoting=quoting)
    rows = made.records(columns, header=header, blank_rows=blank_rows)
    return map(_with_points, rows) if decimal == "," else rows


@register_reader("tsv", endings=(".tsv", ".tab"), matches=dialect.match_tsv)
def read_tsv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = "\t",
    quoting: bool = False,
    escape: str = "",
    header: bool = True,
    columns: Sequence[str] = (),
    decimal: str = ".",
    encoding: str = "",
    blank_rows: bool = False,
) -> Iterator[Record]:
    """Yields the rows of a tab-separated file, as `read_csv` does.

    Quotes are ordinary characters unless `quoting` is set: a field cannot contain a tab.
    """
    return read_csv(
        path,
        bad,
        delimiter=delimiter,
        quoting=quoting,
        escape=escape,
        header=header,
        columns=columns,
        decimal=decimal,
        encoding=encoding,
        blank_rows=blank_rows,
    )


def _with_points(record: Record) -> Record:
    """Returns a row whose numbers have a decimal point."""
    values = {
        name: value.replace(".", "").replace(",", ".") if COMMA_NUMBER.fullmatch(value) else value
        for name, value in record.values.items()
    }
    return Record(record.place, values)
