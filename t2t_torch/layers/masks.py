"""Masks: boolean, True where there is data (or where one may look)."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.text.encoder import PAD


def padding_mask(ids: Tensor) -> Tensor:
    """Returns where there is data.  [B, S] ids -> [B, S] bool."""
    return ids != PAD


def attend_to(mask: Tensor) -> Tensor:
    """Returns an attention mask under which all queries see where `mask` is True.

    [B, S] bool -> [B, 1, 1, S] bool; a row without data is all True.
    """
    return never_empty(mask)[:, None, None, :]


def same_segment(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns an attention mask under which a position sees only its own packed example.

    Args:
      queries: segment of each query, 0 where there is padding.  [B, T]
      keys: segment of each key.  [B, S]

    Returns:
      [B, 1, T, S] bool; padding sees padding, and where there is none, everything.
    """
    return never_empty(queries[:, :, None] == keys[:, None, :])[:, None]


def never_empty(mask: Tensor) -> Tensor:
    """Lets a query that may look nowhere look everywhere: a softmax over nothing is not a number.

    [..., S] bool -> [..., S] bool.  What such a query finds has no weight in a loss: it is padding,
    or an example without inputs.
    """
    return mask | ~mask.any(-1, keepdim=True)


def causal(length: int, device: torch.device) -> Tensor:
    """Returns an attention mask under which no position sees a later one.  [1, 1, T, T] bool."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
