"""A seeded shuffle of more rows than fit in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from t2t_torch.atomic_files import named_errors
from t2t_torch.data import shards
from t2t_torch.data.shards import Ragged, Rows
from t2t_torch.errors import DataError
from t2t_torch.files import check_regular

Keys: TypeAlias = npt.NDArray[np.uint64]

_RANGE_BITS = 12
NUM_RANGES = 1 << _RANGE_BITS
"""Number of ranges of keys, all of the same size; a range is given by the first bits of a key."""


_KEYS = ""  # name of the keys among the features


@dataclasses.dataclass(frozen=True)
class SortedRun:
    """A file of Arrow with rows sorted by key; written by `write`, opened by `open`.

    Attributes:
      path: path of the file.
      row_edges: [NUM_RANGES + 1]; range r has the rows row_edges[r] to row_edges[r + 1] - 1.
      byte_edges: size in memory of the rows before each range, in bytes, [NUM_RANGES + 1].
    """

    path: Path
    row_edges: npt.NDArray[np.int64]
    byte_edges: npt.NDArray[np.int64]

    @staticmethod
    def write(path: Path, keys: Keys, rows: Rows) -> None:
        """Writes rows that are sorted by key."""
        keyed = {_KEYS: Ragged(keys, np.arange(len(keys) + 1)), **rows}
        types = {name: f"list<{column.values.dtype}>" for name, column in keyed.items()}
        batch = shards.record_batch(keyed, schema := shards.schema_of(types))
        with (
            named_errors(path),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, schema) as writer,
        ):
            writer.write_batch(batch)

    @classmethod
    def open(cls, path: Path) -> SortedRun:
        """Opens a file written by `write`; raises DataError if it is damaged."""
        columns = _read(path)
        firsts = np.arange(1, NUM_RANGES, dtype=np.uint64) << np.uint64(64 - _RANGE_BITS)
        keys = columns[_KEYS].values
        row_edges = np.array([0, *np.searchsorted(keys, firsts), len(keys)], np.int64)
        bytes_of = [
            8 * row_edges + column.values.itemsize * column.offsets[row_edges].astype(np.int64)
            for name, column in columns.items()
            if name != _KEYS
        ]
        return cls(path, row_edges, np.sum([8 * row_edges, *bytes_of], axis=0))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.row_edges[-1])

    def read(self, first: int, last: int) -> tuple[Keys, Rows]:
        """Reads the keys and rows of the ranges first, first + 1, ... last - 1."""
        start, stop = int(self.row_edges[first]), int(self.row_edges[last])
        rows = dict(shards.between(_read(self.path), start, stop))
        return rows.pop(_KEYS).values, rows


def _read(path: Path) -> dict[str, Ragged]:
    """Returns views of the keys and rows of a run; DataError if the file is damaged."""
    try:
        with pa.ipc.open_file(pa.memory_map(check_regular(path))) as reader:
            return shards.rows_of(reader.get_batch(0))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is missing or damaged: {error}. Run its task again.") from None


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
        self._runs: list[Path] = []

    def add(self, rows: Rows, numbers: npt.NDArray[np.integer]) -> None:
        """Adds rows.

        Args:
          rows: rows with the same features in each call.
          numbers: unique numbers of the rows, [rows].
        """
        count = shards.num_rows(rows)
        self._keys.append(
            # Shifted, so that runs, which are cut by the highest bits, have ranges of 2^20 rows.
            numbers.astype(np.uint64) << np.uint64(32)
            if self._keeps_order
            else splitmix64(np.uint64(self._seed) + numbers.astype(np.uint64) * GOLDEN)
        )
        self._buffer.append(rows)
        self._buffered_bytes += shards.nbytes(rows) + 8 * count
        self.num_rows += count
        if self._buffered_bytes > self._memory_bytes:
            self.spill()

    def spill(self) -> Sequence[Path]:
        """Writes the buffered rows; returns the files of all rows, for `merged`."""
        if self._buffer:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"run-{len(self._runs):05d}"
            SortedRun.write(path, *self._sorted_buffer())
            self._runs.append(path)
        return self._runs

    def drain(self) -> Iterator[Rows]:
        """Yields all rows in their new order, in pieces, and removes the files."""
        if not self._runs:
            if self._buffer:
                yield self._sorted_buffer()[1]
            return
        yield from merged(self.spill(), memory_bytes=self._memory_bytes)
        for path in self._runs:
            path.unlink()

    def _sorted_buffer(self) -> tuple[Keys, Rows]:
        keys = np.concatenate(self._keys)
        rows = shards.concatenate(self._buffer)
        self._keys, self._buffer, self._buffered_bytes = [], [], 0
        order = np.argsort(keys)
        return keys[order], shards.take(rows, order)


def merged(files: Sequence[Path], *, memory_bytes: int = MEMORY_BYTES) -> Iterator[Rows]:
    """Yields the rows of several shuffles with the same seed in their new order, in pieces.

    Raises:
      DataError: a file is missing or damaged.
    """
    runs = [run for run in map(SortedRun.open, files) if run.num_rows]
    for first, last in groups(runs, memory_bytes) if runs else ():
        pieces = [run.read(first, last) for run in runs]
        keys = np.concatenate([piece for piece, _ in pieces])
        rows = shards.concatenate([piece for _, piece in pieces])
        del pieces
        yield shards.take(rows, np.argsort(keys))


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Distance of the states of SplitMix64."""


def splitmix64(states: Keys) -> Keys:
    """Returns the next outputs of SplitMix64.  Steele, Lea and Flood 2014, figures 13 and 15.

    Outputs of different states differ, because each step is invertible.
    """
    mixed: Keys = states + GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
