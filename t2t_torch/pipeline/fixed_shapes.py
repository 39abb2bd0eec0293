"""The few shapes that batches have when each is filled up to its bucket."""

from __future__ import annotations

import dataclasses

import numpy as np

from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme


@dataclasses.dataclass(frozen=True)
class FixedShapes:
    """The shapes of batches that are filled up to the boundary of a bucket, and to its rows.

    Attributes:
      scheme: the buckets.
      fills_rows: whether rows of padding fill up a short batch; they have no weight in a loss over
        sequences, but would in one over rows.
    """

    scheme: BatchingScheme
    fills_rows: bool

    def of(self, rows: int, longest: int) -> tuple[int, int]:
        """Returns the rows and positions of a batch.

        Args:
          rows: that it has.
          longest: positions of the longest of them.
        """
        filled, widths = self.of_batches(np.asarray([rows]), np.asarray([longest]))
        return int(filled[0]), int(widths[0])

    def of_batches(self, rows: np.ndarray, longest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns `of` many batches.  Two of [batches] integers -> two of [batches] integers.

        A batch has its bucket's shape.  The bucket is that of its longest row, or one further up:
        what a bucket has left over is in a batch of a later one, which has as many rows as that.
        """
        scheme = self.scheme
        limit = scheme.max_length if scheme.max_length < NO_LIMIT else 0
        bounds = np.asarray([*scheme.boundaries, limit])
        sizes = np.asarray(scheme.batch_sizes)  # descending
        own = scheme.buckets(longest)
        as_many = np.searchsorted(-sizes, -rows, side="left").clip(max=len(sizes) - 1)
        later = np.maximum(own, as_many)
        bucket = np.where(sizes[later] == rows, later, own)
        filled = np.maximum(rows, sizes[bucket]) if self.fills_rows else rows
        return filled, np.maximum(longest, bounds[bucket])
