"""One stored feature of a split: by row, and in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.data.ragged import Ragged, Values

BLOCK_VALUES = 1 << 20
"""Values, and rows, in a block at most, unless one row alone has more."""


class Column:
    """The rows of a feature, mapped from the shards' files.

    Args:
      pairs: values and offsets of each record batch, as `Shards.column` returns them.
    """

    def __init__(self, pairs: Sequence[tuple[Values, npt.NDArray[np.integer[Any]]]]) -> None:
        self._batches = list(pairs)
        self._ends = np.cumsum([len(offsets) - 1 for _, offsets in pairs])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def num_values(self) -> int:
        """The numbers of all rows together."""
        return sum(int(offsets[-1]) - int(offsets[0]) for _, offsets in self._batches)

    def row(self, index: int, limit: int | None = None) -> Values:
        """Returns the numbers of a row, or the first `limit` of them."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        values, offsets = self._batches[number]
        place = index - int(self._ends[number]) + len(offsets) - 1
        start, stop = int(offsets[place]), int(offsets[place + 1])
        return values[start : stop if limit is None else min(stop, start + limit)]

    def blocks(self, size: int = BLOCK_VALUES) -> Iterator[tuple[int, Ragged]]:
        """Yields (number of the first row, rows) of consecutive blocks."""
        first = 0
        for values, offsets in self._batches:
            total, start = len(offsets) - 1, 0
            while start < total:
                low = int(offsets[start])
                stop = int(np.searchsorted(offsets, low + size, side="right")) - 1
                stop = min(max(stop, start + 1), start + size)
                places = offsets[start : stop + 1].astype(np.int64)
                yield first + start, Ragged(values[low : places[-1]], places - low)
                start = stop
            first += total
