"""Readers of binary tables: Parquet, Excel and Hugging Face data sets."""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from t2t_torch.errors import DataError, UsageError, require
from t2t_torch.files import DAMAGED, check_regular, file_content, open_bytes, path_inside, read_json
from t2t_torch.readers.delimited import UNNAMED, find_header
from t2t_torch.readers.head import Head, Match, starts_with
from t2t_torch.readers.jsonl import with_dotted
from t2t_torch.readers.text_file import BadRecords, Place, Record, duplicates
from t2t_torch.registry import register_reader

_BATCH_ROWS = 64  # at most
_USUAL_RATIO = 20  # of a column's size to that in the file; a dictionary of one value has far more
_MAX_VALUES = 1 << 20, 100  # values of a column: of any file; for each of its bytes
_MAX_UNPACKED = 1 << 28, 200  # bytes: of any file; for each of its bytes
_MAX_GROUP = 1 << 26, 200  # bytes of a group of rows, which may be one value: as above


@register_reader("parquet", endings=(".parquet",), matches=starts_with(rb"PAR1"))
def read_parquet(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields the rows of a file, by column; null is None.

    Fields of a struct are included under names such as "a.b", as in `read_jsonl`.  Class ids and
    pictures of a file of the library `datasets` are those of `read_huggingface`.  A row is bad if
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
            file = _seekable(path, stack)
            opened = parquet.ParquetFile(file)
            rows = _check_parquet(path, opened.metadata, file.seek(0, io.SEEK_END))
            if twice := duplicates(opened.schema_arrow.names):
                raise DataError(f"{path} has two columns {twice[0]!r}. Rename one of them.")
            kinds = _described(opened.schema_arrow.metadata)
            yield from _records(path, opened.iter_batches(rows), kinds, bad)
    except (pyarrow.ArrowException, OSError, *DAMAGED) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"Cannot read {path}: {error.strerror}.") from None
        # Arrow and gzip raise an OSError without a number for invalid compressed data.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is no parquet file, or is damaged: {reason}") from None


def _check_parquet(path: Path, metadata: Any, size: int) -> int:
    """Returns how many rows to read at once: fewer where each may be a large value of a dictionary.

    Raises:
      DataError: a file of `size` bytes is a decompression bomb by its metadata.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [[one.column(j) for j in range(one.num_columns)] for one in groups]
    values = max((sum(c.num_values for c in one) for one in zip(*columns, strict=True)), default=0)
    sizes = [one.total_byte_size for one in groups]
    for amount, unit, limits in (
        (values, "values of a column", _MAX_VALUES),
        (sum(sizes), "bytes", _MAX_UNPACKED),
        (max(sizes, default=0), "bytes in a group of rows", _MAX_GROUP),
    ):
        _check_unpacked(path, size, amount, limits, unit)
    parts = ((c.total_uncompressed_size, c.total_compressed_size) for one in columns for c in one)
    largest = max((part for part, packed in parts if part > _USUAL_RATIO * packed), default=1)
    return max(1, min(_BATCH_ROWS, _MAX_GROUP[0] // largest))


def _check_unpacked(
    path: Path, size: int, amount: int, limits: tuple[int, int], unit: str = "bytes"
) -> None:
    """Raises DataError if a file of `size` bytes unpacks to more than its limits."""
    always, ratio = limits
    if amount > max(always, ratio * size):
        raise DataError(
            f"{path} has {size:,} bytes and unpacks to {amount:,} {unit}, as decompression bombs "
            "do. If it is to be trusted, save it again without compression, or as CSV."
        )


def _described(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """Returns the columns as the library `datasets` describes them, if it wrote the file."""
    try:
        kinds = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return kinds if isinstance(kinds, dict) else {}


def _seekable(path: Path, stack: ExitStack) -> BinaryIO:
    file = stack.enter_context(open_bytes(path))
    if isinstance(file, io.BufferedReader):
        return file
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  the stack closes it
    size = path.stat().st_size
    while piece := file.read(1 << 20):
        unpacked.write(piece)
        _check_unpacked(path, size, unpacked.tell(), _MAX_UNPACKED)
    unpacked.seek(0)
    return unpacked


_CHANGED = re.compile('"(ClassLabel|Image)"')


def _records(
    path: Path, batches: Iterable[Any], kinds: Mapping[str, Any], bad: BadRecords
) -> Iterator[Record]:
    """Yields the rows of Arrow's batches, with class names and pictures.

    Args:
      path: the file or folder, for places.
      batches: batches or tables.
      kinds: columns as the library `datasets` describes them, as far as it does.
      bad: policy for rows that are no text, or whose pictures cannot be decoded.
    """
    kinds = {n: kind for n, kind in kinds.items() if _CHANGED.search(json.dumps(kind))}
    for number, row in enumerate(itertools.chain.from_iterable(map(_rows, batches)), 1):
        place = Place(path, number, unit="row")
        if isinstance(row, str):
            bad.report(place, row)
            continue
        try:
            for name, kind in kinds.items():
                row[name] = _value(kind, row[name])
        except (OSError, ValueError, IndexError, DataError) as error:
            bad.report(place, f"cannot be decoded: {error}")
        else:
            yield Record(place, with_dotted(row))


def _rows(batch: Any) -> Iterator[dict[str, Any] | str]:
    """Yields the rows of a batch, or why one cannot be read."""
    import pyarrow

    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError as error:
        if batch.num_rows > 1:
            for number in range(batch.num_rows):
                yield from _rows(batch.slice(number, 1))
            return
        *others, last = batch.schema.names
        parts = ((name, next(_rows(batch.select([name])))) for name in others)
        broken = next((name for name, part in parts if isinstance(part, str)), last)
        yield f"the column {broken!r} is not UTF-8 ({error.reason})"
        return
    # Hive, Impala and old versions of pandas do not mark texts as such.
    binary = [f.name for f in batch.schema if pyarrow.types.is_binary(f.type)]
    for row in rows:
        for name in binary:
            with contextlib.suppress(UnicodeDecodeError):
                if row[name] is not None and b"\0" not in row[name]:
                    row[name] = row[name].decode()
        yield row


def _match_excel(head: Head) -> Match | None:
    is_zip = head.start.startswith(b"PK\x03\x04")
    if not head.has_ending(".xlsx", ".xlsm") and not (is_zip and b"xl/work" in head.start):
        return None
    try:
        name, rows = sheet_of(head.path)
    except DataError as error:
        return Match(1.0 if is_zip else 0.6, refusal=str(error))
    doubts = [f"the sheet {name!r} is read, the first that is not empty."]
    width = max(len(row) for _, row in rows)
    cells = [[*map(_cell, row), *[None] * (width - len(row))] for _, row in rows[: 1 + _INSPECTED]]
    found = find_header([["" if v is None else str(v) for v in row] for row in cells])
    options = {"sheet": name} if found.is_header else {"sheet": name, "header": False}
    return Match(1.0, options, [*doubts, *found.doubts])


@register_reader("excel", endings=(".xlsx", ".xlsm"), matches=_match_excel)
def read_excel(
    path: Path, bad: BadRecords, *, sheet: str = "", header: bool = True
) -> Iterator[Record]:
    """Yields the rows of a sheet; dates are ISO 8601, formulas their last values.

    Columns are named as in `read_csv`.  Empty rows are skipped.  A place holds the row's number in
    the sheet.

    Args:
      path: the file.
      bad: unused: a row can have any values.
      sheet: name of the sheet; by default the first one that is not empty.
      header: the first row names the columns; otherwise their names are "0", "1", ...

    Raises:
      DataError: openpyxl is not installed, the file is no workbook, or the sheet is not there.
    """
    name, numbered = sheet_of(path, sheet)
    width = max(len(row) for _, row in numbered)
    names = [str(place) for place in range(width)]
    if header:
        named = [str(v).strip() if v not in _EMPTY else "" for v in numbered.pop(0)[1]]
        named += [""] * (width - len(named))
        names = [name or f"{UNNAMED}{place}" for place, name in enumerate(named)]
    if twice := duplicates(names):
        raise DataError(f"{path}, sheet {name!r}: two columns are {twice[0]!r}. Rename one.")
    for number, row in numbered:
        values = (*map(_cell, row), *[None] * (width - len(row)))
        yield Record(Place(path, number, unit="row"), dict(zip(names, values, strict=True)))


def sheet_of(path: Path, sheet: str = "") -> tuple[str, list[tuple[int, tuple[Any, ...]]]]:
    """Returns the name of a sheet of a workbook, and its rows that are not empty.

    Args:
      path: the file.
      sheet: see `read_excel`.

    Returns:
      The name, and the numbers and values of the rows, without empty cells at their ends.

    Raises:
      DataError: as of `read_excel`.
    """
    needs = f"{path} is read with openpyxl and defusedxml"
    require(
        "defusedxml", "excel", needs, DataError
    )  # openpyxl itself uses it, where it is installed
    openpyxl = require("openpyxl", "excel", needs, DataError)
    content = file_content(path, "workbook")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            total = sum(member.file_size for member in archive.infolist())
        _check_unpacked(path, len(content), total, _MAX_XML)
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        with contextlib.closing(book):
            sheets = {one.title: one for one in book.worksheets}
            if sheet and sheet not in sheets:
                raise DataError(f"{path} has no sheet {sheet!r}, but {', '.join(sheets)}.")
            for name in [sheet] if sheet else sheets:
                if rows := _filled_rows(path, sheets[name]):
                    return name, rows
    except DataError:
        raise
    except Exception as error:  # openpyxl raises errors of many kinds for damaged files
        why = str(error) or type(error).__name__
        raise DataError(f"{path} is no workbook of Excel, or is damaged: {why}") from None
    raise DataError(f"{path} is empty: no sheet of it has a row ({', '.join(sheets)}).")


_EMPTY = (None, "")
_INSPECTED = 1000  # rows from which the header is inferred
_MAX_ROWS = 1_048_576  # of Excel
_MAX_CELLS = 20_000_000  # up to the last filled one of each row
_MAX_AREA = 5 * _MAX_CELLS  # rows times columns
_MAX_XML = 1 << 22, 60  # bytes: of any workbook; for each of its bytes: equal texts have 24


def _filled_rows(path: Path, sheet: Any) -> list[tuple[int, tuple[Any, ...]]]:
    sheet.reset_dimensions()  # some programs write a size that is wrong
    rows: list[tuple[int, tuple[Any, ...]]] = []
    cells = widest = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        width = len(row)
        while width and row[width - 1] in _EMPTY:
            width -= 1
        if width:
            rows.append((number, tuple(row[:width])))
            cells, widest = cells + width, max(widest, width)
        if number > _MAX_ROWS or cells > _MAX_CELLS or len(rows) * widest > _MAX_AREA:
            raise DataError(
                f"{path}, sheet {sheet.title!r}, has more than {_MAX_ROWS:,} rows or "
                f"{_MAX_CELLS:,} cells. Save it as CSV."
            )
    return rows


def _cell(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return value if isinstance(value, str | int | float | None) else str(value)


MARKS = ("dataset_info.json", "dataset_dict.json")
"""Files of a data set, or a dictionary of data sets, that was saved to disk."""


def _match_huggingface(head: Head) -> Match | None:
    return Match(1.0) if {*MARKS} & {*head.names} else None


@register_reader("huggingface", matches=_match_huggingface)
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
    if not hub:
        return _from_disk(path, bad, split)
    if not split:
        raise UsageError(f"{hub}: name one of its splits with the option split, such as train.")
    datasets = require("datasets", "hf", f"{hub} is downloaded with datasets", DataError)
    try:
        rows = datasets.load_dataset(hub, config or None, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"Cannot load {hub} ({config or 'default'}, {split}): {error}") from None
    stored = rows.with_format("arrow")  # the library itself decodes pictures of any format
    batches = (stored[start : start + _BATCH_ROWS] for start in range(0, len(rows), _BATCH_ROWS))
    return _records(Path(hub), batches, rows.features.to_dict(), bad)


def _from_disk(path: Path, bad: BadRecords, split: str) -> Iterator[Record]:
    """Returns the rows of a saved data set, which needs no library but pyarrow."""
    if not any((path / mark).exists() for mark in MARKS):
        raise DataError(
            f"{path} is no folder that save_to_disk wrote. To download a data set from "
            "huggingface.co, give its name with the option hub."
        )
    try:
        if (path / MARKS[1]).exists():
            splits = read_json(path / MARKS[1])["splits"]
            if split not in splits:
                raise DataError(
                    f"{path} holds {', '.join(splits)}, and the option split says {split!r}. Name "
                    "one that is there."
                )
            path = path / split
        kinds = read_json(path / MARKS[0])["features"]
        state = read_json(path / "state.json")
        files = [path_inside(path, one["filename"]) for one in state["_data_files"]]
        saved_split = str(state.get("_split"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"Cannot load {path}: {error!r}") from None
    if split and saved_split not in ("None", split):
        raise DataError(f"{path} is the split {saved_split}, and the option split says {split}.")
    return _records(path, itertools.chain.from_iterable(map(_stored, files)), kinds or {}, bad)


def _stored(file: Path) -> Iterator[Any]:
    """Yields the batches of an Arrow file."""
    import pyarrow

    try:
        with (
            pyarrow.memory_map(check_regular(file)) as source,
            pyarrow.ipc.open_stream(source) as stream,
        ):
            yield from stream
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"Cannot load {file}: {error}") from None


def _value(kind: Any, value: Any) -> Any:
    """Returns a value with class names in place of class ids, and arrays in place of images.

    A kind is as `dataset_info.json` describes it.
    """
    if value is None:
        return None
    if isinstance(kind, list):
        return [_value(kind[0], item) for item in value]
    of = kind.get("_type")
    if of == "ClassLabel":
        return kind["names"][value] if value >= 0 else None
    if of == "Image":
        return picture_of(value)
    if not isinstance(of, str):
        return {name: _value(kind[name], inner) for name, inner in value.items()}
    inner = kind.get("feature")
    if isinstance(value, list) and inner is not None:
        return [_value(inner, item) for item in value]
    if isinstance(value, dict) and isinstance(inner, dict):
        # The library stores a sequence of objects as an object of sequences.
        return {name: [_value(inner[name], item) for item in held] for name, held in value.items()}
    return value


def picture_of(value: Any, size: tuple[int, int] | None = None) -> Any:
    """Returns a picture as a uint8 array [height, width, channels], scaled to a size if given.

    Args:
      value: a PIL image, a path, or {"bytes", "path"} as Arrow files hold it.
      size: width and height.

    Raises:
      DataError: Pillow is not installed, or it is no picture, damaged or too large.
    """
    from t2t_torch.features.picture import decoded, pixels_of_image, resized

    if isinstance(value, dict):
        value = value.get("bytes") or Path(value["path"])
    if isinstance(value, bytes | Path):
        picture = decoded(file_content(value, "picture"))
    else:
        picture = pixels_of_image(value)
    return resized(picture, (size[1], size[0])) if size else picture
