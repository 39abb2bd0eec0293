"""A seeded shuffle of more rows than fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from t2t_torch.data import ragged, runs
from t2t_torch.data.ragged import Rows
from t2t_torch.data.runs import Keys, Run

MEMORY_BYTES = 1 << 26  # encoded rows held before they are spilled; sorting them takes twice that


class Shuffle:
    """Takes rows in one order, gives them back in another that depends on the seed alone.

    Row number i gets a 64-bit key, a hash of (seed, i) that no other row has; the new order is that
    of the keys.  When more than `memory_bytes` has come in, it is sorted and goes to a file, a run;
    all runs are merged by ranges of keys.  So neither the pieces in which rows arrive, nor the
    memory allowed, nor how many shuffles share the work has any influence on the result.  At most
    about `memory_bytes`, or 1/4096 of all rows if that is more, are sorted in memory at a time.
    """

    def __init__(
        self,
        seed: str,
        directory: Path,
        *,
        keeps_order: bool = False,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """Starts empty; `directory` is made when rows are spilled, and the caller removes it.

        With `keeps_order` the new order is that of the rows' numbers: nothing is shuffled.
        """
        self.num_rows = 0
        self._keeps_order = keeps_order
        self._seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._keys: list[Keys] = []
        self._buffer: list[Rows] = []
        self._buffered_bytes = 0
        self._runs: list[Run] = []

    def add(self, rows: Rows, numbers: npt.NDArray[np.integer] | None = None) -> None:
        """Takes the next rows.

        Args:
          rows: of the same features each time.
          numbers: [rows] the rows' numbers, each given once; by default they are counted from 0.
        """
        count = ragged.num_rows(rows)
        if numbers is None:
            numbers = np.arange(self.num_rows, self.num_rows + count)
        self._keys.append(
            # Shifted, so that runs, which are cut by the highest bits, have ranges of 2^20 rows.
            numbers.astype(np.uint64) << np.uint64(32)
            if self._keeps_order
            else _splitmix64(self._seed, numbers)
        )
        self._buffer.append(rows)
        self._buffered_bytes += ragged.nbytes(rows) + 8 * count
        self.num_rows += count
        if self._buffered_bytes > self._memory_bytes:
            self._spill()

    def spill(self) -> Sequence[Path]:
        """Writes what is still in memory; returns the files of all rows, which `merged` reads."""
        self._spill()
        return [run.path for run in self._runs]

    def drain(self) -> Iterator[Rows]:
        """Gives all rows in their new order, in pieces, and removes the files."""
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
        rows = ragged.concatenate(self._buffer)
        self._keys, self._buffer, self._buffered_bytes = [], [], 0
        order = np.argsort(keys)
        return keys[order], ragged.take(rows, order)

    def _spill(self) -> None:
        if self._buffer:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"run-{len(self._runs):05d}"
            self._runs.append(Run.write(path, *self._sorted_buffer()))


def merged(files: Sequence[Path], *, memory_bytes: int = MEMORY_BYTES) -> Iterator[Rows]:
    """Gives the rows of the files of several shuffles of one seed in their new order, in pieces.

    Raises:
      DataError: a file is missing or damaged.
    """
    return _merged([Run.open(path) for path in files], memory_bytes)


def _merged(found: Sequence[Run], memory_bytes: int) -> Iterator[Rows]:
    there = [run for run in found if run.num_rows]
    if there:
        for first, last in runs.groups(there, memory_bytes):
            yield runs.read_sorted(there, first, last)


def _splitmix64(seed: int, numbers: npt.NDArray[np.integer]) -> Keys:
    """The outputs of SplitMix64 of these numbers, from 0.  Steele, Lea, Flood 2014, figure 13.

    Two numbers never have the same output: each step can be undone.
    """
    number = numbers.astype(np.uint64) + np.uint64(1)
    z = np.uint64(seed) + number * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = z ^ (z >> np.uint64(31))
    return mixed
