"""From row numbers to padded tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme
from t2t_torch.text.encoder import PAD

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards

Batch = dict[str, torch.Tensor]


class Collator:
    """Reads rows from the shards and pads them: row numbers in, a batch out.

    Args:
      shards: the data.
      columns: for each feature of a batch, the stored column it is read from.
      max_lengths: for each feature the tokens kept of a row; absent means all.
      pad_to: a scheme: every feature is padded to the boundary of the batch's bucket; None pads to
        the longest row of the batch.
    """

    def __init__(
        self,
        shards: Shards,
        columns: Mapping[str, str],
        *,
        max_lengths: Mapping[str, int] | None = None,
        pad_to: BatchingScheme | None = None,
    ) -> None:
        self._stored = {feature: shards.column(column) for feature, column in columns.items()}
        self._max_lengths = dict(max_lengths or {})
        self._pad_to = pad_to
        rows = [len(offsets) - 1 for _, offsets in next(iter(self._stored.values()))]
        self._first_row = np.concatenate([[0], np.cumsum(rows)])  # [shards + 1]

    def __call__(self, rows: np.ndarray) -> Batch:
        """Returns `{feature: [B, longest] int64}`, 0 where there is no data; rows are sorted."""
        rows = np.sort(rows)  # of one shard together
        splits = np.searchsorted(rows, self._first_row)  # [shards + 1]
        flat = {name: self._gather(name, rows, splits) for name in self._stored}
        width = self._width(max(int(lengths.max()) for _, lengths in flat.values()))
        return {
            name: torch.from_numpy(_pad(values, lengths, width))
            for name, (values, lengths) in flat.items()
        }

    def _width(self, longest: int) -> int:
        """Returns the fixed width that `pad_to` asks for, 0 for none."""
        if self._pad_to is None:
            return 0
        scheme = self._pad_to
        limit = scheme.max_length if scheme.max_length < NO_LIMIT else longest
        bucket = int(np.searchsorted(np.asarray(scheme.boundaries), longest, side="right"))
        return max(longest, [*scheme.boundaries, limit][bucket])

    def _gather(
        self, name: str, rows: np.ndarray, splits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns all tokens of the rows in a line, and the length of each row."""
        pieces = []
        lengths = np.empty(len(rows), np.int64)
        limit = self._max_lengths.get(name, 0)
        for shard, (values, offsets) in enumerate(self._stored[name]):
            low, high = splits[shard], splits[shard + 1]
            if low == high:
                continue
            local = rows[low:high] - self._first_row[shard]
            starts = offsets[local]
            count = offsets[local + 1] - starts
            if limit:
                count = np.minimum(count, limit)
            lengths[low:high] = count
            before = np.cumsum(count) - count
            pieces.append(values[np.repeat(starts - before, count) + np.arange(count.sum())])
        return np.concatenate(pieces), lengths


def _pad(values: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns [B, width] int64; width 0 means the longest row, at least one position."""
    width = width or max(1, int(lengths.max()))
    padded = np.full((len(lengths), width), PAD, np.int64)
    padded[np.arange(width) < lengths[:, None]] = values
    return padded
