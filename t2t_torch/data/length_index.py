"""Rows by their lengths: groups of equal lengths, and a file with those of each shard.

A split of many rows has the file `NAME-train.lengths.arrow`, so that an epoch is counted without
opening the shards.  Other splits are counted from their shards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from t2t_torch.data.manifest import ShardEntry, sha256_of
from t2t_torch.data.shards import Shards, row_lengths, view
from t2t_torch.errors import DataError
from t2t_torch.files import check_regular, named_errors, path_inside, sync
from t2t_torch.mode import Split

INDEX_ROWS = 1 << 20
"""Rows from which a split gets an index: counting fewer from the shards takes 0.1 s."""

_LARGEST_TABLE = 1 << 25  # smaller keys are numbered with a table, without sorting


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows with equal lengths of all features.

    Groups are ordered by their longest length, then by each length in the order of features.

    Attributes:
      of_row: group of each row, [N] int32.
      counts: number of rows in each group, [G].
      longest: longest length of each group, [G].
      lengths: lengths of each group by feature, [G].
    """

    of_row: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    longest: npt.NDArray[np.int64]
    lengths: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def of(
        cls, lengths: Mapping[str, npt.NDArray[Any]], counts: npt.NDArray[Any] | None = None
    ) -> Groups:
        """Groups rows, or the groups of several parts of a split.

        Args:
          lengths: lengths of each row by feature, [N], >= 0.
          counts: number of rows with these lengths, [N]; None for one each.
        """
        keys = _Keys()
        for length in lengths.values():
            keys.append(length)
        columns = keys.columns()
        longest = np.maximum.reduce(columns)
        order = np.lexsort((*reversed(columns), longest))
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order))
        of_row = keys.look_up(numbers)
        sorted_columns = [column[order] for column in columns]
        by_name = dict(zip(lengths, sorted_columns, strict=True))
        sizes = np.bincount(of_row, counts, len(order)).astype(np.int64)
        return cls(of_row, sizes, longest[order], by_name)


class _Keys:
    """The lengths of each row as one integer; the first length is the most significant."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[Any] | None = None
        self._size = 1  # keys are below it
        self._spans: list[int] = []  # of the lengths that are in the keys as they are
        self._dense: list[npt.NDArray[Any]] = []  # the others, by what is in the keys for them

    def append(self, length: npt.NDArray[Any]) -> None:
        """Appends a length of every row to the keys."""
        span = int(length.max(initial=0)) + 1
        if self._keys is not None and self._size * span > _LARGEST_TABLE:
            self._dense, values = self.columns(), self._values
            self._keys = self.look_up(np.arange(len(values), dtype=np.int32))
            self._size, self._spans = len(values), []
        dtype = np.int32 if self._size * span < 2**31 else np.int64
        if self._keys is None:
            self._keys = length.astype(dtype)
        else:
            self._keys = np.multiply(self._keys, span, dtype=dtype)
            self._keys += length
        self._size *= span
        self._spans.append(span)

    def columns(self) -> list[npt.NDArray[Any]]:
        """Returns each length of the distinct keys, in ascending order of keys."""
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            self._values = np.unique(self._keys)
        else:
            is_key = np.zeros(self._size, np.bool_)
            is_key[self._keys] = True
            self._values = np.flatnonzero(is_key)
        left = self._values
        own: list[npt.NDArray[Any]] = []
        for span in reversed(self._spans):
            own.insert(0, left % span)
            left = left // span
        return [*(column[left] for column in self._dense), *own]

    def look_up(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns the number of the key of every row; call `columns` first.

        Args:
          numbers: numbers of the distinct keys, in ascending order of keys.
        """
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            return numbers[np.searchsorted(self._values, self._keys)]
        table = np.zeros(self._size, np.int32)
        table[self._values] = numbers
        positions: npt.NDArray[np.int32] = table[self._keys]
        return positions


_COUNT = ""  # name of the column of counts among those of features


def index_name(dataset_name: str, split: str) -> str:
    """Returns the name of the index of a split: `NAME-train.lengths.arrow`."""
    return f"{dataset_name}-{split}.lengths.arrow"


def write_index(path: Path, shards: Sequence[Path], columns: Sequence[str]) -> ShardEntry:
    """Writes the index of a split: for each shard its groups, as a batch of an Arrow file.

    Args:
      path: path of the index.
      shards: shards of the split, in order.
      columns: stored features whose lengths decide about batches.

    Returns:
      Its entry of the manifest, whose `rows` is the number of groups of all shards.
    """
    rows = 0
    schema = pa.schema([(name, pa.int32()) for name in (_COUNT, *columns)])
    with (
        named_errors(path),
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for shard in shards:
            reader = pa.ipc.open_file(pa.memory_map(str(shard)))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            stored = sum(batch.num_rows for batch in batches)
            lengths, counts = _counted(row_lengths(batches, columns), stored)
            arrays = [pa.array(each.astype(np.int32)) for each in (counts, *lengths.values())]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            rows += len(counts)
    sync(path)
    return ShardEntry(file=path.name, rows=rows, bytes=path.stat().st_size, sha256=sha256_of(path))


def _counted(
    lengths: Mapping[str, npt.NDArray[Any]], rows: int
) -> tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """Returns the distinct lengths of rows and their counts, [groups] each."""
    if not lengths:
        return {}, np.asarray([rows])
    groups = Groups.of(lengths)
    return groups.lengths, groups.counts


class LengthIndex:
    """Groups of rows with equal lengths in each shard of a split.

    They are read from the index of the split, shard by shard; of a split without one, or without
    one of the columns, they are counted from the shards.

    Args:
      shards: shards of the split, or of several.
      columns: stored features whose lengths are of interest.
    """

    def __init__(self, shards: Shards, columns: Sequence[str]) -> None:
        self._shards = shards
        self._columns = columns
        # File of each shard's groups, and the number of its batch there.
        self._places: list[tuple[pa.ipc.RecordBatchFileReader | None, int]] = []
        for split in shards.splits:
            entry = shards.manifest.split(split, shards.data_dir)
            reader = None if entry.index is None else self._open(entry.index.file, split)
            self._places += [(reader, number) for number in range(len(entry.shards))]

    def _open(self, file: str, split: Split) -> pa.ipc.RecordBatchFileReader | None:
        folder, manifest = self._shards.data_dir, self._shards.manifest
        try:
            path = check_regular(path_inside(folder, file))
            reader = pa.ipc.open_file(pa.OSFile(str(path)))  # not mapped: it is read once
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{folder / file} is missing or not an Arrow file: {error}. "
                f"Generate it again:  {manifest.command(folder)}"
            ) from None
        return reader if set(self._columns) <= set(reader.schema.names) else None

    def counts(self, first: int, last: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        """Returns lengths by column, and the number of rows with them; groups may repeat.

        Args:
          first: number of the first shard.
          last: number after that of the last shard.

        Returns:
          Arrays of [groups] each.
        """
        parts = [self._of_shard(number) for number in range(first, last)]
        lengths = {
            name: np.concatenate([part[name] for part, _ in parts]) for name in self._columns
        }
        return lengths, np.concatenate([counts for _, counts in parts])

    def _of_shard(self, number: int) -> tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        reader, place = self._places[number]
        if reader is None:
            lengths = self._shards.lengths_of(number, number + 1, self._columns)
            return _counted(lengths, self._shards.shard_rows[number])
        batch = reader.get_batch(place)
        int32 = np.dtype(np.int32)
        return {n: view(batch[n], int32) for n in self._columns}, view(batch[_COUNT], int32)
