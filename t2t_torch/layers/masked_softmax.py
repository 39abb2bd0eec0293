"""Weights of positions, of which those without data have none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from t2t_torch.layers.masks import never_empty


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns a softmax over the positions with data; zeros elsewhere, and if there are none.

    Args:
      scores: [..., S].
      mask: where there is data, bool; [..., S], of a shape that broadcasts to the scores'.

    Returns:
      [..., S], float32 whatever the scores are.
    """
    weights = scores.float().masked_fill(~never_empty(mask), -torch.inf).softmax(-1)
    return weights * mask


class MaskedSoftmax(nn.Module):
    """The same as a module, so that a hook can draw what it gives (`hooks/attention_maps.py`)."""

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the weights in the scores' type.  [B, R, S], [B, S] bool -> [B, R, S]."""
        return masked_softmax(scores, mask[:, None]).to(scores.dtype)
