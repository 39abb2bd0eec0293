"""Readers of tables: CSV, TSV, Parquet and Hugging Face data sets."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from t2t_torch.errors import DataError, UsageError, install_extra
from t2t_torch.readers.jsonl import with_dotted
from t2t_torch.readers.text_file import BadRecords, Numbered, Place, Record, TextFile, without_end
from t2t_torch.registry import register_reader

MAX_LINES = 10_000
"""Maximum number of lines of a quoted field; a longer one is treated as an error."""

CONVERT_RETURNS = "only line feeds, or both together, end lines. Convert the file:  tr '\\r' '\\n'"
"""Error message for a file whose lines end with carriage returns only."""

UNNAMED = "Unnamed: "
"""Prefix of the name of a column that the header does not name."""

_LINE_ENDS = ("", "\n", "\r\n")


@register_reader("csv", endings=(".csv",))
def read_csv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = ",",
    quoting: bool = True,
    header: bool = True,
    columns: Sequence[str] = (),
) -> Iterator[Record]:
    r"""Yields the rows of a CSV file, following RFC 4180; the values are strings.

    A line ends with "\n" or "\r\n" (never with "\r" alone) and blank lines are skipped.  A field
    that begins with a quote ends with the next single quote, and may contain the delimiter, line
    breaks, which are kept unchanged, and quotes, each written twice.  A quote elsewhere is an
    ordinary character, and so are spaces next to the delimiter.

    If the header leaves one column without a name, like the index of a data frame, its name is
    "Unnamed: " and its number from 0, as in pandas.

    A row whose number of fields differs from the header is bad, and so is one with text after the
    closing quote.  If such a row spans several lines, or its quote is still open after `MAX_LINES`,
    too many fields or at the end of the file, that quote is treated as an error: it is reported
    where it opened, and the next line is read as a new row.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad rows.
      delimiter: one character.
      quoting: interpret quotes.
      header: the first row names the columns; otherwise their names are "0", "1", ...
      columns: names of the columns; the first row is then data.

    Raises:
      DataError: the file cannot be read, or the header is missing, bad, or has duplicate or several
        missing names.
      UsageError: an option is invalid.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(
            f"{delimiter!r} cannot delimit fields; one character, no quote and no line end, can."
        )
    return _Rows(path, bad, delimiter, quoting=quoting).records(columns, header=header)


@register_reader("tsv", endings=(".tsv", ".tab"))
def read_tsv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = "\t",
    quoting: bool = False,
    header: bool = True,
    columns: Sequence[str] = (),
) -> Iterator[Record]:
    """Yields the rows of a tab-separated file, as `read_csv` does.

    Quotes are ordinary characters unless `quoting` is set: a field cannot contain a tab.
    """
    return read_csv(path, bad, delimiter=delimiter, quoting=quoting, header=header, columns=columns)


class _Rows:
    """The rows of a file, read in one pass."""

    def __init__(self, path: Path, bad: BadRecords, delimiter: str, *, quoting: bool) -> None:
        self._path = path
        self._bad = bad
        self._delimiter = delimiter
        self._quoting = quoting
        self._lines = TextFile(path, bad)
        self._names: tuple[str, ...] = ()  # unknown until the first row

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


# Apache Parquet.


_BATCH_ROWS = 1024
_GZIP_MAGIC = b"\x1f\x8b"


@register_reader("parquet", endings=(".parquet",))
def read_parquet(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields the rows of a file, by column; null is None.

    Fields of a struct are included under names such as "a.b", as in `read_jsonl`.  A row is bad if
    one of its strings is not UTF-8.  A place holds the number of the row, from 1.  A
    gzip-compressed file is first unpacked to a temporary file, as parquet requires random access.

    Args:
      path: the file.
      bad: policy for bad rows.

    Raises:
      DataError: the file cannot be read, is not parquet, is damaged, or has duplicate columns.
    """
    # Imported here to keep listing formats fast.
    import pyarrow
    from pyarrow import parquet

    try:
        with ExitStack() as stack:
            opened = parquet.ParquetFile(_seekable(path, stack))
            names = opened.schema_arrow.names
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise DataError(f"{path} has two columns {twice[0]!r}. Rename one of them.")
            start = 1
            for batch in opened.iter_batches(_BATCH_ROWS):
                yield from _rows(path, batch, start, bad)
                start += batch.num_rows
    except (pyarrow.ArrowException, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"Cannot read {path}: {error.strerror}.") from None
        # Arrow and gzip raise an OSError without a number for invalid compressed data.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is no parquet file, or is damaged: {reason}") from None


def _seekable(path: Path, stack: ExitStack) -> BinaryIO:
    file = stack.enter_context(path.open("rb"))
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    if magic != _GZIP_MAGIC:
        return file
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  the stack closes it
    with gzip.open(path) as packed:
        shutil.copyfileobj(packed, unpacked)
    unpacked.seek(0)
    return unpacked


def _rows(path: Path, batch: Any, start: int, bad: BadRecords) -> Iterator[Record]:
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        rows = None
    for i in range(batch.num_rows):
        place = Place(path, start + i, unit="row")
        try:
            values = rows[i] if rows is not None else batch.slice(i, 1).to_pylist()[0]
        except UnicodeDecodeError as error:
            column = _broken_column(batch.slice(i, 1))
            bad.report(place, f"the column {column} is not UTF-8 ({error.reason})")
            continue
        yield Record(place, with_dotted(values))


def _broken_column(row: Any) -> str:
    for name in row.schema.names:
        try:
            row.column(name).to_pylist()
        except UnicodeDecodeError:
            return repr(name)
    raise AssertionError("a row without fault was refused")


# Data sets of the Hugging Face library `datasets`.


MARKS = ("dataset_info.json", "dataset_dict.json")
"""Files of a data set, or a dictionary of data sets, that was saved to disk."""


_HUGGINGFACE_BATCH_ROWS = 256


@register_reader("huggingface")
def read_huggingface(
    path: Path, bad: BadRecords, *, split: str = "", hub: str = "", config: str = ""
) -> Iterator[Record]:
    """Yields the rows of a data set, by column.

    Nested values are included under names such as "a.b", as in `read_jsonl`.  Class ids become
    class names (None for -1, "no label"), images uint8 arrays [height, width, channels].  A place
    holds the number of the row, from 1.

    Args:
      path: the folder written by `save_to_disk`; unused if `hub` is set.
      bad: policy for rows that the library cannot decode.
      split: name of one of several data sets, such as "train"; for the hub also a slice, such as
        "train[:10%]".
      hub: name of a data set at huggingface.co to download.
      config: name of one of its configurations.

    Raises:
      DataError: the library is not installed, or the data set or split does not exist.
      UsageError: `config` is set without `hub`.
    """
    if config and not hub:
        raise UsageError("The option config is for the option hub, which is not given.")
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"{hub or path} is read with the library datasets:  {install_extra('hf')}"
        ) from None
    if hub:
        return _huggingface_rows(Path(hub), _from_hub(datasets, hub, config, split), bad)
    return _huggingface_rows(path, _from_disk(datasets, path, split), bad)


def _from_hub(datasets: Any, hub: str, config: str, split: str) -> Any:
    if not split:
        raise UsageError(f"{hub}: name one of its splits with the option split, such as train.")
    try:
        return datasets.load_dataset(hub, config or None, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"Cannot load {hub} ({config or 'default'}, {split}): {error}") from None


def _from_disk(datasets: Any, path: Path, split: str) -> Any:
    if not any((path / mark).exists() for mark in MARKS):
        raise DataError(
            f"{path} is no folder that save_to_disk wrote. To download a data set from "
            "huggingface.co, give its name with the option hub."
        )
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"Cannot load {path}: {error}") from None
    if isinstance(loaded, datasets.DatasetDict):
        if split not in loaded:
            raise DataError(
                f"{path} holds {', '.join(loaded)}, and the option split says {split!r}. Name one "
                "that is there."
            )
        return loaded[split]
    if split and str(loaded.split) not in ("None", split):
        raise DataError(f"{path} is the split {loaded.split}, and the option split says {split}.")
    return loaded


def _huggingface_rows(path: Path, rows: Any, bad: BadRecords) -> Iterator[Record]:
    plain = _plain_columns(rows.features)
    for start in range(0, len(rows), _HUGGINGFACE_BATCH_ROWS):
        taken = range(start, min(start + _HUGGINGFACE_BATCH_ROWS, len(rows)))
        for number, row in enumerate(_decoded(rows, taken), start + 1):
            place = Place(path, number, unit="row")
            if isinstance(row, Exception):
                bad.report(place, f"cannot be decoded: {row}")
                continue
            for name, kind in rows.features.items():
                if name not in plain:
                    row[name] = _value(kind, row[name])
            yield Record(place, with_dotted(row))


def _plain_columns(features: Any) -> set[str]:
    """Returns the columns that only contain numbers and texts, which need no conversion."""
    described = {name: repr(kind) for name, kind in features.items()}
    return {
        name for name, of in described.items() if "ClassLabel(" not in of and "Image(" not in of
    }


def _value(kind: Any, value: Any) -> Any:
    """Returns a value with class names in place of class ids, and arrays in place of images."""
    import datasets

    if value is None:
        return None
    if isinstance(kind, datasets.ClassLabel):
        return kind.int2str(value) if value >= 0 else None
    if isinstance(kind, datasets.Image):
        import numpy as np

        picture = value if value.mode in ("L", "RGB") else value.convert("RGB")
        return np.asarray(picture).reshape(picture.height, picture.width, -1)
    if isinstance(kind, dict):
        return {name: _value(kind[name], inner) for name, inner in value.items()}
    inner = kind[0] if isinstance(kind, list) else getattr(kind, "feature", None)
    if isinstance(value, list) and inner is not None:
        return [_value(inner, item) for item in value]
    if isinstance(value, dict) and isinstance(inner, dict):
        # The library stores a sequence of objects as an object of sequences.
        return {name: [_value(inner[name], item) for item in held] for name, held in value.items()}
    return value


def _decoded(rows: Any, taken: range) -> list[dict[str, Any] | Exception]:
    """Returns rows, or for each that cannot be decoded, the error."""
    try:
        columns = rows[taken.start : taken.stop]
    except (OSError, ValueError):
        return [_row(rows, i) for i in taken]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _row(rows: Any, i: int) -> dict[str, Any] | Exception:
    try:
        return dict(rows[i])
    except (OSError, ValueError) as error:
        return error
