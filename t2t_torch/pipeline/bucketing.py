"""Which lengths share a batch, and how many examples of a length fit in one.

tensor2tensor's formulas (`utils/data_reader.py`), held to its own numbers by golden vectors.  One
step is left out on purpose: tensor2tensor rounds each batch size down to a divisor of a common
window, which its `tf.data` operator needed and which leaves up to a quarter of the token budget
unused.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from t2t_torch.errors import HParamsError

NO_LIMIT = 10**9  # tensor2tensor's "any length"


@dataclasses.dataclass(frozen=True)
class BatchingScheme:
    """Buckets by length, and the size of a batch in each.

    Attributes:
      boundaries: ascending lengths in tokens; bucket i holds `boundaries[i-1] <= length <
        boundaries[i]`, the last bucket everything from the last boundary on.
      batch_sizes: examples in a batch, one per bucket: `len(boundaries) + 1` of them.
      min_length: shorter examples are dropped; tokens.
      max_length: longer examples are dropped; tokens.
    """

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    min_length: int
    max_length: int

    def buckets(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the bucket of each length.  [N] integers -> [N] integers."""
        return np.searchsorted(np.asarray(self.boundaries), lengths, side="right")


def bucket_boundaries(
    max_length: int, min_length: int = 8, length_bucket_step: float = 1.1
) -> list[int]:
    """Returns ascending boundaries below `max_length`, each about `length_bucket_step` times the
    last.

    Args:
      max_length: no boundary reaches it; tokens.
      min_length: the first boundary; tokens.
      length_bucket_step: growth from one boundary to the next; more than 1.
    """
    if length_bucket_step <= 1.0:
        raise HParamsError(f"length_bucket_step={length_bucket_step}: expected more than 1.0.")
    if min_length < 1:
        raise HParamsError(f"min_length_bucket={min_length}: expected at least 1.")
    boundaries = []
    boundary = min_length
    while boundary < max_length:
        boundaries.append(boundary)
        boundary = max(boundary + 1, int(boundary * length_bucket_step))
    return boundaries


def batching_scheme(
    batch_size: int,
    max_length: int,
    min_length_bucket: int,
    length_bucket_step: float,
    *,
    drop_long_sequences: bool = False,
    shard_multiplier: int = 1,
    length_multiplier: int = 1,
    min_length: int = 0,
) -> BatchingScheme:
    """Returns the scheme of a token budget.

    Args:
      batch_size: tokens in a batch, padding counted.
      max_length: tokens in the longest example; 0 means `batch_size`.
      min_length_bucket: the first boundary; tokens.
      length_bucket_step: growth from one boundary to the next.
      drop_long_sequences: whether examples longer than `max_length` are dropped.
      shard_multiplier: multiplies every batch size.
      length_multiplier: multiplies boundaries and `max_length`, for data whose length is a
        multiple.
      min_length: shorter examples are dropped; tokens.

    Raises:
      HParamsError: `max_length` is less than `min_length`.
    """
    max_length = max_length or batch_size
    if max_length < min_length:
        raise HParamsError(
            f"max_length={max_length} is less than min_length={min_length}: no example fits."
        )
    boundaries = [
        boundary * length_multiplier
        for boundary in bucket_boundaries(max_length, min_length_bucket, length_bucket_step)
    ]
    max_length *= length_multiplier
    sizes = [
        max(1, batch_size // length) * shard_multiplier for length in [*boundaries, max_length]
    ]
    return BatchingScheme(
        boundaries=tuple(boundaries),
        batch_sizes=tuple(sizes),
        min_length=min_length,
        max_length=max_length if drop_long_sequences else NO_LIMIT,
    )
