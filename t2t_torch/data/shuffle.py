"""A seeded shuffle of more rows than fit in memory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.data import shards
from t2t_torch.data.shards import Ragged, Rows
from t2t_torch.errors import DataError
from t2t_torch.files import named_errors, open_regular

Keys: TypeAlias = npt.NDArray[np.uint64]

_RANGE_BITS = 12
NUM_RANGES = 1 << _RANGE_BITS
"""Number of ranges of keys, all of the same size; a range is given by the first bits of a key."""


@dataclasses.dataclass(frozen=True)
class SortedRun:
    """A file of rows sorted by key; created by `write`, opened by `open`.

    The file contains in numpy's format: names and dtypes of the features, and the numbers of rows
    and of values of each feature before each range; then, as raw bytes, all keys, and for each
    feature the lengths of the rows and their values.

    Attributes:
      path: path of the file.
      dtypes: dtype of each feature's values.
      row_edges: [NUM_RANGES + 1]; range r has the rows row_edges[r] to row_edges[r + 1] - 1.
      value_edges: [features, NUM_RANGES + 1]; the same for each feature's values.
      start: position of the keys in bytes.
    """

    path: Path
    dtypes: dict[str, np.dtype[Any]]
    row_edges: npt.NDArray[np.int64]
    value_edges: npt.NDArray[np.int64]
    start: int

    @classmethod
    def write(cls, path: Path, keys: Keys, rows: Rows) -> SortedRun:
        """Writes rows that are sorted by key."""
        dtypes = {name: column.values.dtype for name, column in rows.items()}
        firsts = np.arange(1, NUM_RANGES, dtype=np.uint64) << np.uint64(64 - _RANGE_BITS)
        inner = np.searchsorted(keys, firsts)
        row_edges = np.concatenate([[0], inner, [len(keys)]]).astype(np.int64)
        value_edges = np.stack([column.offsets[row_edges] for column in rows.values()])
        with named_errors(path), path.open("wb") as file:
            np.save(file, np.array(list(rows)), allow_pickle=False)
            np.save(file, np.array([dtype.str for dtype in dtypes.values()]), allow_pickle=False)
            np.save(file, row_edges, allow_pickle=False)
            np.save(file, value_edges, allow_pickle=False)
            start = file.tell()
            keys.tofile(file)
            for column in rows.values():
                column.lengths.astype(np.int32).tofile(file)
                column.values.tofile(file)
        return cls(path, dtypes, row_edges, value_edges, start)

    @classmethod
    def open(cls, path: Path) -> SortedRun:
        """Opens a file written by `write`; raises DataError if it is damaged."""
        try:
            with open_regular(path) as file:
                names, types, row_edges, value_edges = (
                    np.load(file, allow_pickle=False) for _ in range(4)
                )
                start = file.tell()
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} is missing or damaged: {error}. Run its task again.") from None
        dtypes = {str(name): np.dtype(str(type_)) for name, type_ in zip(names, types, strict=True)}
        return cls(path, dtypes, row_edges, value_edges, start)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.row_edges[-1])

    @functools.cached_property
    def byte_edges(self) -> npt.NDArray[np.int64]:
        """The size in memory of the rows before each range, in bytes, [NUM_RANGES + 1]."""
        per_row = 8 + 8 * len(self.dtypes)  # a key, and an offset of each feature
        sizes = np.array([dtype.itemsize for dtype in self.dtypes.values()], dtype=np.int64)
        edges: npt.NDArray[np.int64] = self.row_edges * per_row + sizes @ self.value_edges
        return edges

    def read(self, first: int, last: int) -> tuple[Keys, Rows]:
        """Reads the keys and rows of the ranges first, first + 1, ... last - 1.

        Raises:
          DataError: the file is truncated.
        """
        start, stop = self.row_edges[first], self.row_edges[last]
        rows: dict[str, Ragged] = {}
        with open_regular(self.path) as file:

            def part(begin: int, dtype: npt.DTypeLike, low: int, high: int) -> npt.NDArray[Any]:
                size = np.dtype(dtype).itemsize
                file.seek(begin + int(low) * size)
                array = np.fromfile(file, dtype, int(high - low))
                if len(array) != high - low:
                    raise DataError(f"{self.path} is truncated. Run its task again.")
                return array

            keys = part(self.start, np.uint64, start, stop)
            place = self.start + 8 * self.num_rows
            for (name, dtype), edges in zip(self.dtypes.items(), self.value_edges, strict=True):
                lengths = part(place, np.int32, start, stop)
                place += 4 * self.num_rows
                values = part(place, dtype, edges[first], edges[last])
                place += dtype.itemsize * int(edges[-1])
                rows[name] = Ragged.from_lengths(values, lengths)
        return keys, rows


def groups(runs: Sequence[SortedRun], memory_bytes: int) -> list[tuple[int, int]]:
    """Divides the ranges into consecutive groups (first, last + 1) that are read at once.

    The rows of a group in all runs take at most `memory_bytes`, unless the group is a single range.
    Groups without rows are omitted.
    """
    total = np.sum([run.byte_edges for run in runs], axis=0)  # [NUM_RANGES + 1]
    result = []
    first = 0
    while first < NUM_RANGES:
        limit = total[first] + memory_bytes
        last = max(first + 1, int(np.searchsorted(total, limit, side="right")) - 1)
        if total[last] > total[first]:
            result.append((first, last))
        first = last
    return result


MEMORY_BYTES = 1 << 26  # encoded rows held before they are spilled; sorting them takes twice that


class Shuffle:
    """Shuffles rows with bounded memory; the order depends only on the seed.

    Row i has a 64-bit key, a unique hash of (seed, i), and rows are sorted by key.  Each time more
    than `memory_bytes` are buffered, the rows are sorted and written to a file, a run; all runs are
    merged by ranges of keys.  The result does not depend on the pieces in which rows are added, on
    the memory limit, or on the number of shuffles that share the work.  At most about
    `memory_bytes`, or 1/4096 of all rows if that is more, are sorted in memory at once.
    """

    def __init__(
        self,
        seed: str,
        directory: Path,
        *,
        keeps_order: bool = False,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """Creates an empty shuffle.

        Args:
          seed: seed of the order.
          directory: folder of the runs, created if needed; the caller removes it.
          keeps_order: True to sort by row number instead of shuffling.
          memory_bytes: maximum size of buffered rows.
        """
        self.num_rows = 0
        self._keeps_order = keeps_order
        self._seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._keys: list[Keys] = []
        self._buffer: list[Rows] = []
        self._buffered_bytes = 0
        self._runs: list[SortedRun] = []

    def add(self, rows: Rows, numbers: npt.NDArray[np.integer] | None = None) -> None:
        """Adds rows.

        Args:
          rows: rows with the same features in each call.
          numbers: unique numbers of the rows, [rows]; counted from 0 by default.
        """
        count = shards.num_rows(rows)
        if numbers is None:
            numbers = np.arange(self.num_rows, self.num_rows + count)
        self._keys.append(
            # Shifted, so that runs, which are cut by the highest bits, have ranges of 2^20 rows.
            numbers.astype(np.uint64) << np.uint64(32)
            if self._keeps_order
            else _splitmix64(self._seed, numbers)
        )
        self._buffer.append(rows)
        self._buffered_bytes += shards.nbytes(rows) + 8 * count
        self.num_rows += count
        if self._buffered_bytes > self._memory_bytes:
            self._spill()

    def spill(self) -> Sequence[Path]:
        """Writes the buffered rows; returns the files of all rows, for `merged`."""
        self._spill()
        return [run.path for run in self._runs]

    def drain(self) -> Iterator[Rows]:
        """Yields all rows in their new order, in pieces, and removes the files."""
        if not self._runs:
            if self._buffer:
                yield self._sorted_buffer()[1]
            return
        self._spill()
        yield from _merged(self._runs, self._memory_bytes)
        for run in self._runs:
            run.path.unlink()

    def _sorted_buffer(self) -> tuple[Keys, Rows]:
        keys = np.concatenate(self._keys)
        rows = shards.concatenate(self._buffer)
        self._keys, self._buffer, self._buffered_bytes = [], [], 0
        order = np.argsort(keys)
        return keys[order], shards.take(rows, order)

    def _spill(self) -> None:
        if self._buffer:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"run-{len(self._runs):05d}"
            self._runs.append(SortedRun.write(path, *self._sorted_buffer()))


def merged(files: Sequence[Path], *, memory_bytes: int = MEMORY_BYTES) -> Iterator[Rows]:
    """Yields the rows of several shuffles with the same seed in their new order, in pieces.

    Raises:
      DataError: a file is missing or damaged.
    """
    return _merged([SortedRun.open(path) for path in files], memory_bytes)


def _merged(runs: Sequence[SortedRun], memory_bytes: int) -> Iterator[Rows]:
    nonempty = [run for run in runs if run.num_rows]
    if nonempty:
        for first, last in groups(nonempty, memory_bytes):
            pieces = [run.read(first, last) for run in nonempty]
            keys = np.concatenate([piece for piece, _ in pieces])
            rows = shards.concatenate([piece for _, piece in pieces])
            del pieces
            yield shards.take(rows, np.argsort(keys))


def _splitmix64(seed: int, numbers: npt.NDArray[np.integer]) -> Keys:
    """Returns the outputs of SplitMix64 for numbers from 0.  Steele, Lea, Flood 2014, figure 13.

    All outputs differ, because each step is invertible.
    """
    number = numbers.astype(np.uint64) + np.uint64(1)
    z = np.uint64(seed) + number * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = z ^ (z >> np.uint64(31))
    return mixed
