"""Batches by the length of what they hold, and what is padding in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Bucket:
    """The batches of rows that are shorter than a boundary; lengths in tokens.

    Attributes:
      low: the shortest that belongs here.
      high: the longest that belongs here; None is any.
      batch_size: rows in a full batch.
      rows: in its batches, also shorter ones that the bucket below had left over.
      batches: of an epoch.
      tokens: in them, all features.
      positions: in them, padding counted.
    """

    low: int
    high: int | None
    batch_size: int
    rows: int
    batches: int
    tokens: int
    positions: int

    @property
    def padding(self) -> float:
        """The share of padding."""
        return 1 - self.tokens / max(1, self.positions)


@dataclass(frozen=True)
class BucketTable:
    """An epoch's batches of the training split.

    Attributes:
      hparams: the set and the changes to it that the batches are made with.
      buckets: from short to long; those without a batch are left out.
      rows: in the batches.
      left_out: rows that are too long or too short.
      batches: in all.
      tokens: in all, all features, without padding.
      padding: the share of padding in all positions.
    """

    hparams: str
    buckets: tuple[Bucket, ...]
    rows: int
    left_out: int
    batches: int
    tokens: int
    padding: float


def bucket_table(
    hparams: str,
    lengths: Mapping[str, npt.NDArray[Any]],
    batches: Sequence[npt.NDArray[Any]],
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
) -> BucketTable:
    """Sums up batches by bucket.

    Args:
      hparams: what they were made with, in words.
      lengths: by feature, of every row, as they are in batches.
      batches: the rows of each, none empty.
      boundaries: bucket i holds `boundaries[i - 1] <= length < boundaries[i]`.
      batch_sizes: of each bucket, one more than boundaries.
    """
    sizes = np.fromiter(map(len, batches), np.int64, len(batches))
    starts = np.cumsum(sizes) - sizes
    order = np.concatenate(batches)
    tokens, positions, longest = (np.zeros(len(batches), np.int64) for _ in range(3))
    for values in lengths.values():
        ordered = values[order].astype(np.int64)
        most = np.maximum.reduceat(ordered, starts)
        tokens += np.add.reduceat(ordered, starts)
        positions += most * sizes
        longest = np.maximum(longest, most)
    numbers = np.searchsorted(np.asarray(boundaries), longest, side="right")
    buckets = []
    for number in np.unique(numbers).tolist():
        here = numbers == number
        buckets.append(
            Bucket(
                low=boundaries[number - 1] if number else 0,
                high=boundaries[number] - 1 if number < len(boundaries) else None,
                batch_size=batch_sizes[number],
                rows=int(sizes[here].sum()),
                batches=int(here.sum()),
                tokens=int(tokens[here].sum()),
                positions=int(positions[here].sum()),
            )
        )
    rows = int(sizes.sum())
    return BucketTable(
        hparams=hparams,
        buckets=tuple(buckets),
        rows=rows,
        left_out=len(next(iter(lengths.values()))) - rows,
        batches=len(batches),
        tokens=int(tokens.sum()),
        padding=1 - int(tokens.sum()) / max(1, int(positions.sum())),
    )
