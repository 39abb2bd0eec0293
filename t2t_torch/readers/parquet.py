"""Apache Parquet."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from t2t_torch.errors import DataError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.jsonl import with_dotted

_BATCH_ROWS = 1024
_GZIP_MAGIC = b"\x1f\x8b"


def read_parquet(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields the rows of a file, by column; null is None.

    Fields of a struct are there too, by names such as "a.b", as in `read_jsonl`.  A row is bad if
    one of its strings is not UTF-8.  A place has the number of the row, from 1.  A file packed with
    gzip is unpacked to a temporary file first, as parquet is not read from front to back.

    Args:
      path: the file.
      bad: what becomes of bad rows.

    Raises:
      DataError: the file cannot be read, is no parquet, is damaged, or has two columns of one name.
    """
    # Imported here, so that listing formats does not load it.
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
        # Arrow has an OSError without a number for what does not decompress, and so has gzip.
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
