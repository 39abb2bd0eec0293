"""Rows by their lengths: groups of equal lengths, and a file with those of each shard.

A split of many rows has the file `NAME-train.lengths.arrow`, so that an epoch is counted without
opening the shards.  Other splits are counted from their shards.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from t2t_torch.data.manifest import ShardEntry
from t2t_torch.data.shards import (
    Ragged,
    Shards,
    ShardWriter,
    between,
    row_lengths,
    rows_of,
    schema_of,
)
from t2t_torch.files import check_regular
from t2t_torch.remote import fetch

INDEX_ROWS = 1 << 20
"""Rows from which a split gets an index: counting fewer from the shards takes 0.1 s."""

_LARGEST_TABLE = 1 << 25  # smaller keys are numbered with a table, without sorting
_PIECE = 1 << 18  # rows that are looked up at once: NumPy makes int64 of what it indexes with


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
        by_name = dict(zip(lengths, [column[order] for column in columns], strict=True))
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
            self._keys = self._keys.astype(dtype, copy=False)
            self._keys *= span
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
            for start in range(0, len(self._keys), _PIECE):
                is_key[self._keys[start : start + _PIECE]] = True
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
        positions = np.empty(len(self._keys), np.int32)
        for start in range(0, len(positions), _PIECE):
            positions[start : start + _PIECE] = table[self._keys[start : start + _PIECE]]
        return positions


_COUNT = ""  # name of the column of counts among those of features


def index_name(dataset_name: str, split: str) -> str:
    """Returns the name of the index of a split: `NAME-train.lengths.arrow`."""
    return f"{dataset_name}-{split}.lengths.arrow"


def write_index(path: Path, shards: Sequence[Path], columns: Sequence[str]) -> ShardEntry:
    """Writes the index of a split: a file like a shard, with a row for each shard.

    A row has the lengths of each group of the shard by column, and the counts of the groups.

    Args:
      path: path of the index.
      shards: shards of the split, in order.
      columns: stored features whose lengths decide about batches.
    """
    writer = ShardWriter(path, schema_of(dict.fromkeys((_COUNT, *columns), "list<int32>")))
    for shard in shards:
        batches = _batches(shard)
        groups = _counted(row_lengths(batches, columns), sum(each.num_rows for each in batches))
        rows = {
            name: Ragged.from_lengths(row.astype(np.int32), np.asarray([len(row)]))
            for name, row in groups.items()
        }
        writer.append(rows)
    return writer.close()


def _batches(path: Path) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.memory_map(check_regular(path)))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _counted(lengths: Mapping[str, npt.NDArray[Any]], rows: int) -> dict[str, npt.NDArray[Any]]:
    """Returns the distinct lengths of rows and, as `_COUNT`, their counts, [groups] each."""
    if not lengths:
        return {_COUNT: np.asarray([rows])}
    groups = Groups.of(lengths)
    return {_COUNT: groups.counts, **groups.lengths}


class LengthIndex:
    """Groups of rows with equal lengths in each shard of a split.

    They are read from the index of the split; of a split without one, or without one of the
    columns, they are counted from the shards.  Files are mapped for a call only.

    Args:
      shards: shards of the split, or of several.
      columns: stored features whose lengths are of interest.
    """

    def __init__(self, shards: Shards, columns: Sequence[str]) -> None:
        self._shards = shards
        self._columns = [_COUNT, *columns]
        entries = [shards.manifest.split(split, shards.data_dir).index for split in shards.splits]
        self._files = [shards.data_dir / entry.file for entry in entries if entry is not None]
        for entry in entries:
            if entry is not None:
                fetch(shards.data_dir / entry.file, sha256=entry.sha256)
        names = [set(_batches(file)[0].schema.names) for file in self._files]
        if len(names) < len(entries) or not names[0].intersection(*names).issuperset(self._columns):
            self._files = []

    def counts(self, first: int, last: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        """Returns lengths by column, and the number of rows with them; groups may repeat.

        Args:
          first: number of the first shard.
          last: number after that of the last shard.

        Returns:
          Arrays of [groups] each.
        """
        parts: list[Mapping[str, npt.NDArray[Any]]] = []
        start = 0
        for batch in itertools.chain.from_iterable(map(_batches, self._files)):
            low, high = max(first - start, 0), min(last - start, batch.num_rows)
            if low < high:
                rows = between(rows_of(batch), low, high)
                parts.append({name: rows[name].values for name in self._columns})
            start += batch.num_rows
        if not self._files:
            for shard in range(first, last):
                lengths = self._shards.lengths_of(shard, shard + 1, self._columns[1:])
                parts.append(_counted(lengths, self._shards.shard_rows[shard]))
        joined = {name: np.concatenate([part[name] for part in parts]) for name in self._columns}
        return joined, joined.pop(_COUNT)
