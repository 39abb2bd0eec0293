"""A seeded shuffle of more rows than fit in memory."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from t2t_torch.data import ragged
from t2t_torch.data.ragged import Ragged, Rows

MEMORY_BYTES = 1 << 28  # encoded rows held before they are spilled; sorting them takes twice that
_BUCKET_BITS = 8

_Keys = npt.NDArray[np.uint64]


class Shuffle:
    """Takes rows in one order, gives them back in another that depends on the seed alone.

    Row number i gets a 64-bit key, a hash of (seed, i); the new order is that of the keys.
    When more than `memory_bytes` has come in, rows go to files, one per range of keys, and each
    file is sorted by itself.  So neither the pieces in which rows arrive nor the memory allowed has
    any influence on the result.  At most about `memory_bytes`, or 1/256 of all rows if that is
    more, are sorted in memory at a time.
    """

    def __init__(self, seed: str, directory: Path, *, memory_bytes: int = MEMORY_BYTES) -> None:
        """Starts empty; `directory` is made when rows are spilled, and the caller removes it."""
        self.num_rows = 0
        self._seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._buffer: list[Rows] = []
        self._buffered_bytes = 0
        self._first_buffered = 0
        self._spilled = False

    def add(self, rows: Rows) -> None:
        """Takes the next rows."""
        self._buffer.append(rows)
        self._buffered_bytes += ragged.nbytes(rows)
        self.num_rows += ragged.num_rows(rows)
        if self._buffered_bytes > self._memory_bytes:
            self._spill()

    def drain(self) -> Iterator[Rows]:
        """Gives all rows in their new order, in pieces."""
        if not self._spilled:
            if self._buffer:
                yield self._sorted_buffer()[1]
            return
        if self._buffer:
            self._spill()
        for bucket in range(1 << _BUCKET_BITS):
            path = self._path(bucket)
            if path.exists():
                keys, rows = _read_pieces(path)
                yield ragged.take(rows, np.argsort(keys, kind="stable"))
                path.unlink()

    def _sorted_buffer(self) -> tuple[_Keys, Rows]:
        rows = ragged.concatenate(self._buffer)
        keys = _splitmix64(self._seed, self._first_buffered, self.num_rows)
        order = np.argsort(keys, kind="stable")  # stable: equal keys keep the rows' own order
        self._buffer, self._buffered_bytes, self._first_buffered = [], 0, self.num_rows
        return keys[order], ragged.take(rows, order)

    def _spill(self) -> None:
        keys, rows = self._sorted_buffer()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._spilled = True
        buckets = keys >> np.uint64(64 - _BUCKET_BITS)
        edges = np.searchsorted(buckets, np.arange((1 << _BUCKET_BITS) + 1))
        for bucket, (start, stop) in enumerate(itertools.pairwise(edges)):
            if start < stop:
                with self._path(bucket).open("ab") as file:
                    _write_piece(file, keys[start:stop], ragged.between(rows, start, stop))

    def _path(self, bucket: int) -> Path:
        return self._directory / f"bucket-{bucket:03d}"


def _splitmix64(seed: int, start: int, stop: int) -> _Keys:
    """The outputs number start ... stop - 1 of SplitMix64.  Steele, Lea, Flood 2014, figure 13."""
    number = np.arange(start + 1, stop + 1, dtype=np.uint64)
    z = np.uint64(seed) + number * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _Keys = z ^ (z >> np.uint64(31))
    return mixed


def _write_piece(file: BinaryIO, keys: _Keys, rows: Rows) -> None:
    np.save(file, keys, allow_pickle=False)
    np.save(file, np.array(list(rows)), allow_pickle=False)
    for piece in rows.values():
        np.save(file, piece.values, allow_pickle=False)
        np.save(file, piece.offsets, allow_pickle=False)


def _read_pieces(path: Path) -> tuple[_Keys, Rows]:
    keys: list[_Keys] = []
    pieces: list[Rows] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            keys.append(np.load(file, allow_pickle=False))
            names = np.load(file, allow_pickle=False).tolist()
            pieces.append({name: Ragged(np.load(file), np.load(file)) for name in names})
    return np.concatenate(keys), ragged.concatenate(pieces)
