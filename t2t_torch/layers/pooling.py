"""One vector for a sequence, of the positions that hold data alone."""

from __future__ import annotations

import torch
from torch import Tensor


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over positions, zeros over none.  [B, S, H], [B, S] -> [B, H]."""
    kept = mask[..., None].to(hidden.dtype)
    return (hidden * kept).sum(1) / kept.sum(1).clamp(min=1.0)


def maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns the greatest of each unit, zeros over none.  [B, S, H], [B, S] -> [B, H]."""
    greatest = hidden.masked_fill(~mask[..., None], -torch.inf).amax(1)
    return torch.where(mask.any(1)[:, None], greatest, 0.0)


def last(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns what stands at the last position with data.  [B, S, H], [B, S] -> [B, H]."""
    index = (mask.sum(1) - 1).clamp(min=0)  # [B]
    return hidden[torch.arange(hidden.size(0), device=hidden.device), index]
