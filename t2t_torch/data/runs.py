"""Rows in the order of their keys, in files of which any range of keys can be read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.data import ragged
from t2t_torch.data.ragged import Ragged, Rows
from t2t_torch.data.staging import named_errors
from t2t_torch.errors import DataError

Keys: TypeAlias = npt.NDArray[np.uint64]

_RANGE_BITS = 12
NUM_RANGES = 1 << _RANGE_BITS
"""All keys, cut into so many ranges of the same size, by their first bits."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One file of rows, sorted by their keys.  Make one with `write`, open one with `open`.

    The file holds, as numpy writes them: the features' names, their types, how many rows and how
    many values of each feature precede each range; then, bare, all keys, and for each feature the
    rows' lengths and values.

    Attributes:
      path: the file.
      dtypes: of each feature's values, by its name.
      row_edges: [NUM_RANGES + 1]; range r holds the rows row_edges[r] to row_edges[r + 1] - 1.
      value_edges: [features, NUM_RANGES + 1]; the same of each feature's values.
      start: where the keys begin, in bytes.
    """

    path: Path
    dtypes: dict[str, np.dtype[Any]]
    row_edges: npt.NDArray[np.int64]
    value_edges: npt.NDArray[np.int64]
    start: int

    @classmethod
    def write(cls, path: Path, keys: Keys, rows: Rows) -> Run:
        """Writes rows that are sorted by their keys."""
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
    def open(cls, path: Path) -> Run:
        """Opens a file that `write` wrote; DataError if it is damaged."""
        try:
            with path.open("rb") as file:
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
        """How many rows the file holds."""
        return int(self.row_edges[-1])

    @functools.cached_property
    def byte_edges(self) -> npt.NDArray[np.int64]:
        """[NUM_RANGES + 1] how many bytes the rows of all earlier ranges take in memory."""
        per_row = 8 + 8 * len(self.dtypes)  # a key, and an offset of each feature
        sizes = np.array([dtype.itemsize for dtype in self.dtypes.values()], dtype=np.int64)
        edges: npt.NDArray[np.int64] = self.row_edges * per_row + sizes @ self.value_edges
        return edges

    def read(self, first: int, last: int) -> tuple[Keys, Rows]:
        """Reads the keys and rows of the ranges first, first + 1, ... last - 1.

        Raises:
          DataError: the file ends too early.
        """
        start, stop = self.row_edges[first], self.row_edges[last]
        rows: dict[str, Ragged] = {}
        with self.path.open("rb") as file:

            def part(begin: int, dtype: npt.DTypeLike, low: int, high: int) -> npt.NDArray[Any]:
                size = np.dtype(dtype).itemsize
                file.seek(begin + int(low) * size)
                found = np.fromfile(file, dtype, int(high - low))
                if len(found) != high - low:
                    raise DataError(f"{self.path} is truncated. Run its task again.")
                return found

            keys = part(self.start, np.uint64, start, stop)
            place = self.start + 8 * self.num_rows
            for (name, dtype), edges in zip(self.dtypes.items(), self.value_edges, strict=True):
                lengths = part(place, np.int32, start, stop)
                place += 4 * self.num_rows
                values = part(place, dtype, edges[first], edges[last])
                place += dtype.itemsize * int(edges[-1])
                rows[name] = Ragged.from_lengths(values, lengths)
        return keys, rows


def groups(runs: Sequence[Run], memory_bytes: int) -> list[tuple[int, int]]:
    """Cuts the ranges into consecutive groups (first, last + 1) to be read at a time.

    The rows of a group, of all runs together, take at most `memory_bytes`, or the group is one
    range.  Groups without rows are left out.
    """
    total = np.sum([run.byte_edges for run in runs], axis=0)  # [NUM_RANGES + 1]
    found = []
    first = 0
    while first < NUM_RANGES:
        limit = total[first] + memory_bytes
        last = max(first + 1, int(np.searchsorted(total, limit, side="right")) - 1)
        if total[last] > total[first]:
            found.append((first, last))
        first = last
    return found


def read_sorted(runs: Sequence[Run], first: int, last: int) -> Rows:
    """The rows of some ranges of several runs, all in the order of their keys."""
    pieces = [run.read(first, last) for run in runs]
    keys = np.concatenate([piece for piece, _ in pieces])
    rows = ragged.concatenate([piece for _, piece in pieces])
    del pieces
    return ragged.take(rows, np.argsort(keys))
