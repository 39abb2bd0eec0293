"""How much two distributions differ, and how sure one is; on the last axis.

Both take scores before the softmax.  A score of minus infinity, where there is nothing, adds 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kl_divergence(scores: Tensor, other: Tensor) -> Tensor:
    """Returns sum p (log p - log q), p being the softmax of the first.  [..., V] -> [...]."""
    log_p, log_q = scores.float().log_softmax(-1), other.float().log_softmax(-1)
    nothing = scores == -torch.inf
    difference = (log_p - log_q).masked_fill(nothing, 0.0)
    return (log_p.exp() * difference).sum(-1)


def entropy(scores: Tensor) -> Tensor:
    """Returns -sum p log p, in nats.  [..., V] -> [...]."""
    log_p = scores.float().log_softmax(-1)
    nothing = scores == -torch.inf
    return -(log_p.exp() * log_p.masked_fill(nothing, 0.0)).sum(-1)
