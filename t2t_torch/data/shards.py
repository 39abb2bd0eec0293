"""Shards: Arrow IPC files with the rows of a split, written once, then memory-mapped."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from t2t_torch.atomic_files import named_errors, sync
from t2t_torch.data.manifest import Manifest, ShardEntry, sha256_of
from t2t_torch.errors import DataError, T2TError
from t2t_torch.files import check_regular, path_inside
from t2t_torch.mode import Split
from t2t_torch.remote import cache_limit, fetch, url_of

Values: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]

# Values whose places are found at a time: int64 places take twice the memory of int32 values, and
# what fits in the processor's cache is found faster.
_BLOCK_VALUES = 1 << 18


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Ragged array: row i is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
      values: values of any fixed-width type, [total].
      offsets: ascending from 0 to total, [rows + 1] int64.
    """

    values: Values
    offsets: Offsets

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[Any]], dtype: npt.DTypeLike) -> Ragged:
        """Packs lists of numbers, or arrays of one dimension."""
        offsets = _offsets(np.fromiter(map(len, rows), np.int64, len(rows)))
        if rows and isinstance(rows[0], np.ndarray):
            return cls(np.concatenate(rows, dtype=dtype, casting="same_kind"), offsets)
        flat = itertools.chain.from_iterable(rows)
        return cls(np.fromiter(flat, dtype=dtype, count=int(offsets[-1])), offsets)

    @classmethod
    def from_lengths(cls, values: Values, lengths: npt.NDArray[np.integer[Any]]) -> Ragged:
        """Splits values into rows of the given lengths."""
        return cls(values, _offsets(lengths))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Concatenates at least one ragged array."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([part.lengths for part in parts])
        return cls.from_lengths(np.concatenate([part.values for part in parts]), lengths)

    def select(self, rows: npt.NDArray[np.bool_]) -> Ragged:
        """Returns some rows, by a mask, [rows]."""
        return Ragged.from_lengths(self.values[np.repeat(rows, self.lengths)], self.lengths[rows])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values of each row, [rows]."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Memory of the two arrays in bytes."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def between(self, start: int, stop: int) -> Ragged:
        """Returns the rows start, start + 1, ... stop - 1; the values are a view."""
        first, last = self.offsets[start], self.offsets[stop]
        return Ragged(self.values[first:last], self.offsets[start : stop + 1] - first)

    def take(self, order: npt.NDArray[np.integer[Any]]) -> Ragged:
        """Returns the rows of the indices `order`, in that order."""
        lengths = self.lengths[order]
        offsets = _offsets(lengths)
        # Value j of the result comes from its row's old start plus its place in the row.
        shift = self.offsets[order] - offsets[:-1]
        values = np.empty(offsets[-1], self.values.dtype)
        start = 0
        while start < len(order):
            limit = offsets[start] + _BLOCK_VALUES
            stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
            first, last = offsets[start], offsets[stop]
            places = np.arange(first, last)
            places += np.repeat(shift[start:stop], lengths[start:stop])
            np.take(self.values, places, out=values[first:last], mode="clip")
            start = stop
        return Ragged(values, offsets)


Rows: TypeAlias = Mapping[str, Ragged]
"""The same number of rows of every feature, by the feature's name."""


def value_dtype(arrow_type: str) -> np.dtype[Any]:
    """Returns the numpy type of values of an Arrow type `list<...>`; ValueError for others."""
    if not (arrow_type.startswith("list<") and arrow_type.endswith(">")):
        raise ValueError(
            f"a feature is stored as a list of numbers, e.g. list<int32>: {arrow_type!r}"
        )
    return np.dtype(arrow_type[len("list<") : -1])


def num_rows(rows: Rows) -> int:
    """Returns the number of rows; 0 without features."""
    return len(next(iter(rows.values()), ()))


def nbytes(rows: Rows) -> int:
    """Returns the memory of the rows in bytes."""
    return sum(ragged.nbytes for ragged in rows.values())


def between(rows: Rows, start: int, stop: int) -> Rows:
    """Returns `Ragged.between` of every feature."""
    return {name: ragged.between(start, stop) for name, ragged in rows.items()}


def take(rows: Rows, order: npt.NDArray[np.integer[Any]]) -> Rows:
    """Returns `Ragged.take` of every feature."""
    return {name: ragged.take(order) for name, ragged in rows.items()}


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Returns `Ragged.concatenate` of every feature."""
    return {name: Ragged.concatenate([part[name] for part in parts]) for name in parts[0]}


def _offsets(lengths: npt.NDArray[np.integer[Any]]) -> Offsets:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


# A record batch is kept in memory while it is written, and Arrow's list offsets are int32; most
# shards are far below this number of values and hold one batch.
VALUES_PER_BATCH = 1 << 24

_FETCHERS = 4  # shards that are fetched at once


def shard_name(dataset_name: str, split: Split, index: int, count: int) -> str:
    """Returns the name of a shard as in tensor2tensor: `NAME-train-00000-of-00010.arrow`."""
    return f"{dataset_name}-{split.value}-{index:05d}-of-{count:05d}.arrow"


class ColumnParts(Sequence[tuple[Values, npt.NDArray[np.int32]]]):
    """The rows of a feature as flat arrays: a pair for each part of the rows, read on demand.

    A pair has values [total] and offsets [rows + 1] int32, read-only views of a mapped file: row i
    of the part is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
      rows: number of rows of each part.
    """

    def __init__(self, rows: list[int], read: Callable[[int], Any]) -> None:
        self.rows = rows
        self._read = read

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """Returns the pair of a part."""
        return self._read(range(len(self))[index])


class Shards:
    """The rows of a split, or of several one after the other, with random access to mapped files.

    Created with `Shards.open`.  It can be pickled; the other process maps the files again.
    """

    def __init__(self, data_dir: Path, manifest: Manifest, *splits: Split) -> None:
        """Maps the files; use `Shards.open`, which verifies them first."""
        self.data_dir = data_dir
        self.manifest = manifest
        self.splits = splits
        entries = [manifest.split(split, data_dir) for split in splits]
        self.num_rows = sum(entry.rows for entry in entries)
        self._entries = [shard for entry in entries for shard in entry.shards]
        self.is_remote = bool(url_of(data_dir))
        self._cache_gb = cache_limit()
        self._fetched: dict[int, pa.RecordBatch] = {}
        self._wanted: tuple[range, ...] = ()
        self._batches = []
        if not self.is_remote:
            self._batches = [batch for shard in self._entries for batch in self._open(shard)]

    @classmethod
    def open(cls, data_dir: str | Path, dataset_name: str, *splits: Split) -> Shards:
        """Opens a split of a data set, or several; verifies it.

        Sizes and checksums of these splits' shards and of the vocabulary files are compared with
        the manifest.  The first opening reads every byte; later ones, and those after t2t-datagen,
        read only what has changed since, by its size, time and inode.

        Args:
          data_dir: output folder of `t2t-datagen`.
          dataset_name: `dataset_name` of the problem.
          splits: the splits, in the order of their rows.

        Raises:
          DataError: there is no such data, or a file is missing, truncated or altered.
        """
        folder = Path(data_dir)
        manifest = Manifest.load(folder, dataset_name)
        for split in splits:
            manifest.split(split, folder)
        manifest.verify(folder, splits)
        return cls(folder, manifest, *splits)

    def __len__(self) -> int:
        return self.num_rows

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.data_dir, self.manifest, *self.splits)
        return Shards, given, {"_cache_gb": self._cache_gb}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the stored features."""
        return tuple(self.manifest.features)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that depend on the content and the vocabulary."""
        return "+".join(map(self.manifest.fingerprint, self.splits))

    @functools.cached_property
    def lengths(self) -> Mapping[str, npt.NDArray[np.int32]]:
        """Number of values of each row by feature, including EOS, [num_rows] int32.

        Computed from the list offsets; the values are not read.
        """
        if self.is_remote:
            self.prefetch(range(len(self._entries)))
            return self.lengths_of(0, len(self._entries), self.features)
        return row_lengths(self._batches, self.features)

    @property
    def shard_rows(self) -> list[int]:
        """Number of rows of each shard, in order."""
        return [shard.rows for shard in self._entries]

    def lengths_of(
        self, first: int, last: int, features: Sequence[str]
    ) -> dict[str, npt.NDArray[np.int32]]:
        """Returns `lengths` of the shards first, first + 1, ... last - 1.

        One file after the other is mapped, for this call only: mapped pages count as memory.

        Args:
          first: number of the first shard.
          last: number after that of the last shard.
          features: stored features.
        """
        parts = [row_lengths(self._open(shard), features) for shard in self._entries[first:last]]
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in features}

    def _open(self, shard: ShardEntry) -> list[pa.RecordBatch]:
        """Maps a shard; that of an object store is fetched if it is not here, and verified."""
        if self.is_remote:
            path = path_inside(self.data_dir, shard.file)
            fetch(path, sha256=shard.sha256, cache_gb=self._cache_gb)
        return _read_batches(self.data_dir, self.manifest, shard)

    def prefetch(self, *parts: range) -> None:
        """Begins to fetch the shards of an object store that are not here, the first ones first."""
        if not self.is_remote or parts == self._wanted:
            return
        self._wanted = parts
        files = iter([self._entries[index] for part in parts for index in part])

        def work() -> None:
            with contextlib.suppress(OSError, T2TError):  # the reader of the shard reports it
                for shard in files:
                    self._open(shard)

        for _ in range(_FETCHERS):
            threading.Thread(target=work, name="t2t-fetch", daemon=True).start()

    def _part(self, index: int) -> pa.RecordBatch:
        """Returns the rows of a part; fetches that of an object store, which others may evict.

        Shards that were copied first are evicted first: see `remote.mirror`.
        """
        if not self.is_remote:
            return self._batches[index]
        shard = self._entries[index]
        path = self.data_dir / shard.file
        batch = self._fetched.get(index)
        if batch is None or not path.exists():
            batch = pa.Table.from_batches(self._open(shard)).combine_chunks().to_batches()[0]
            fetched = {**self._fetched, index: batch}  # other threads read the earlier one
            self._fetched = {
                one: kept
                for one, kept in fetched.items()
                if (self.data_dir / self._entries[one].file).exists()
            }
        return batch

    def column(self, feature: str) -> Sequence[tuple[Values, npt.NDArray[np.int32]]]:
        """Returns the rows of a feature as flat arrays, one pair per part, in row order."""
        if feature not in self.manifest.features:
            raise DataError(
                f"{self.manifest.problem!r} in {self.data_dir} has no feature {feature!r}; "
                f"it has: {', '.join(self.features)}. Generate the data again:  t2t-datagen "
                f"--problem={self.manifest.problem} --data_dir={self.data_dir} --overwrite"
            )
        dtype = value_dtype(self.manifest.features[feature].type)

        def read(index: int) -> tuple[Values, npt.NDArray[np.int32]]:
            batch = self._part(index)
            column = batch.column(batch.schema.get_field_index(feature))
            return view(column.values, dtype), view(column.offsets, np.dtype(np.int32))

        if self.is_remote:
            return ColumnParts(self.shard_rows, read)
        return [read(index) for index in range(len(self._batches))]


class ShardWriter:
    """Writes a shard under a temporary name; it may be renamed after `close`.

    Rows may be appended in pieces of any size: the bytes depend only on the rows.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, *, values_per_batch: int = VALUES_PER_BATCH
    ) -> None:
        """Starts a shard of the given columns, each a list of a fixed-width type."""
        self.path = path
        self._schema = schema
        self._room = self._values_per_batch = values_per_batch
        self._pending: list[Rows] = []
        self._rows = 0
        with named_errors(path):
            self._file = pa.OSFile(str(path), "wb")
            self._writer = pa.ipc.new_file(self._file, schema)

    def append(self, rows: Rows) -> None:
        """Adds rows at the end."""
        values = np.sum([piece.offsets for piece in rows.values()], axis=0)  # [rows + 1]
        start, total = 0, num_rows(rows)
        self._rows += total
        while start < total:
            # Space is negative after a row that exceeds the limit.
            limit = values[start] + max(self._room, 0)
            stop = int(np.searchsorted(values, limit, side="right")) - 1
            if stop == start and not self._pending:
                stop = start + 1  # a row beyond the limit has its own batch
            if stop > start:
                self._pending.append(between(rows, start, stop))
                self._room -= int(values[stop] - values[start])
            if stop < total:
                self._write_batch()
            start = stop

    def close(self) -> ShardEntry:
        """Finishes the file and returns its manifest entry."""
        if self._pending:
            self._write_batch()
        with named_errors(self.path):
            self._writer.close()
            self._file.close()
        sync(self.path)
        return ShardEntry(
            file=self.path.name,
            rows=self._rows,
            bytes=self.path.stat().st_size,
            sha256=sha256_of(self.path),
        )

    def _write_batch(self) -> None:
        batch = record_batch(concatenate(self._pending), self._schema)
        with named_errors(self.path):
            self._writer.write_batch(batch)
        self._pending = []
        self._room = self._values_per_batch


def schema_of(arrow_types: Mapping[str, str]) -> pa.Schema:
    """Returns the Arrow schema of columns without nulls, of types such as `list<int32>`."""
    return pa.schema(
        [
            pa.field(name, pa.list_(pa.from_numpy_dtype(value_dtype(arrow_type))), nullable=False)
            for name, arrow_type in arrow_types.items()
        ]
    )


def record_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows as a batch of a file of Arrow."""
    arrays = []
    for field in schema:
        column = rows[field.name]
        offsets = pa.array(column.offsets.astype(np.int32))
        values = pa.array(column.values, type=field.type.value_type)
        arrays.append(pa.ListArray.from_arrays(offsets, values, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(batch: pa.RecordBatch) -> dict[str, Ragged]:
    """Returns views of the rows of a batch."""
    return {
        field.name: Ragged(
            view(column.values, np.dtype(field.type.value_type.to_pandas_dtype())),
            view(column.offsets, np.dtype(np.int32)),
        )
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }


def row_lengths(
    batches: Sequence[pa.RecordBatch], features: Sequence[str]
) -> dict[str, npt.NDArray[np.int32]]:
    """Returns the number of values of each row by feature, [rows]; from the list offsets."""
    none = np.zeros(0, np.int32)
    return {
        name: np.concatenate(
            [none, *(np.diff(view(batch[name].offsets, none.dtype)) for batch in batches)]
        )
        for name in features
    }


def _read_batches(data_dir: Path, manifest: Manifest, shard: ShardEntry) -> list[pa.RecordBatch]:
    path = data_dir / shard.file
    try:
        reader = pa.ipc.open_file(pa.memory_map(check_regular(path_inside(data_dir, shard.file))))
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} is missing or not an Arrow file: {error}. "
            f"Generate it again:  {manifest.command(data_dir)}"
        ) from None
    rows = sum(batch.num_rows for batch in batches)
    if rows != shard.rows or set(reader.schema.names) != set(manifest.features):
        raise DataError(
            f"{path} holds {rows} rows of {', '.join(reader.schema.names)}; the manifest says "
            f"{shard.rows} rows of {', '.join(manifest.features)}. "
            f"Generate it again:  {manifest.command(data_dir)}"
        )
    return batches


def view(array: pa.Array, dtype: np.dtype[Any]) -> Values:
    """Returns a view of the numbers of an array; Arrow's `to_numpy` would import pandas.

    Args:
      array: array without nulls.
      dtype: type of its numbers.
    """
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)
