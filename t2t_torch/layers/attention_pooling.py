"""Several vectors of a text, each the mean of its positions by weights of its own.

Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", arXiv:1703.03130.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.layers.masked_softmax import MaskedSoftmax


class Pooled(NamedTuple):
    """What attention makes of a text.

    Attributes:
      means: M of the paper, the hops one after the other, [B, R * H].
      weights: A of the paper; a hop's add up to 1 over positions with data, [B, R, S].
    """

    means: Tensor
    weights: Tensor


class AttentionPooling(nn.Module):
    """Means of a text's states, R hops: A = softmax(W2 tanh(W1 H)), M = A H; section 2.1.

    Args:
      size: H of a state.
      attention_size: d_a of the paper, rows of W1.
      hops: R, rows of W2.
    """

    def __init__(self, size: int, attention_size: int, hops: int = 1) -> None:
        super().__init__()
        self.inner = nn.Linear(size, attention_size, bias=False)  # W1
        self.outer = nn.Linear(attention_size, hops, bias=False)  # W2
        self.weights = MaskedSoftmax()

    def forward(self, hidden: Tensor, mask: Tensor) -> Pooled:
        """[B, S, H], [B, S] bool -> [B, R * H] and [B, R, S]."""
        scores = self.outer(self.inner(hidden).tanh()).transpose(1, 2)  # [B, R, S]
        weights = self.weights(scores, mask)
        return Pooled(torch.matmul(weights, hidden).flatten(1), weights)


def hop_penalty(weights: Tensor) -> Tensor:
    """Returns how much the hops of each text look at the same, or at much at once.

    The squared Frobenius norm of A A^T - I; section 2.2.  [B, R, S] -> [B].
    """
    weights = weights.float()
    gram = torch.matmul(weights, weights.transpose(1, 2))  # [B, R, R]
    identity = torch.eye(gram.size(-1), device=gram.device)
    return (gram - identity).square().sum((1, 2))
