"""A sum over many rows in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def sum_in_chunks(
    function: Callable[..., Tensor], columns: Sequence[Tensor | None], chunk: int
) -> Tensor:
    """Returns the sum of `function(*rows)` over chunks of rows.

    What a chunk computes on the way is let go and computed again for its gradients, unless there is
    one chunk alone.  `function` must give the same each time: it may not draw random numbers.

    Args:
      function: of `chunk` rows of each column, or fewer -> a scalar that adds up over rows.
      columns: [N, ...] each, the same N, the first at least given; None is handed on as it is.
      chunk: rows at a time, at least 1.

    Returns:
      A scalar; of no rows what `function` gives for none.
    """
    first = columns[0]
    assert first is not None
    if len(first) <= chunk:
        return function(*columns)
    parts = []
    for start in range(0, len(first), chunk):
        rows = [None if c is None else c[start : start + chunk] for c in columns]
        parts.append(checkpoint(function, *rows, use_reentrant=False, preserve_rng_state=False))
    return torch.stack(parts).sum()
