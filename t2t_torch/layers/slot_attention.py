"""Attention of each word over the whole sentence.

Of PyText (Aly et al. 2018, arXiv:1812.08729), after Liu and Lane 2016, arXiv:1609.01454; its three
scores are those of Luong et al. 2015, arXiv:1508.04025, section 3.1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from t2t_torch.layers.masked_softmax import MaskedSoftmax

SlotScore = Literal["concat", "multiply", "dot"]
"""How well word j answers word i: v . tanh(W [h_i; h_j]), h_i W h_j or h_i . h_j."""


class SlotAttention(nn.Module):
    """Puts beside each word's vector the mean of all, by how well they answer it.

    The matrix of `concat` is applied to each word once, not to each pair.

    Args:
      size: H of a vector.
      score: which of the three.
      attention_size: A, units of `concat`.
    """

    def __init__(self, size: int, score: SlotScore, attention_size: int) -> None:
        super().__init__()
        self.score = score
        if score == "concat":
            self.of_word = nn.Linear(size, attention_size, bias=False)
            self.of_others = nn.Linear(size, attention_size, bias=False)
            self.vector = nn.Linear(attention_size, 1, bias=False)
        elif score == "multiply":
            self.of_word = nn.Linear(size, size, bias=False)
        self.weights = MaskedSoftmax()

    def forward(self, words: Tensor, sentence: Tensor, mask: Tensor) -> Tensor:
        """Returns each word's vector with its mean of the sentence.

        Args:
          words: [B, W, H].
          sentence: all vectors, [B, S, H].
          mask: where there is data, [B, S] bool.

        Returns:
          [B, W, 2 H].
        """
        if self.score == "concat":
            pairs = self.of_word(words)[:, :, None] + self.of_others(sentence)[:, None]
            scores = self.vector(pairs.tanh()).squeeze(-1)  # [B, W, S]
        else:
            asked = self.of_word(words) if self.score == "multiply" else words
            scores = asked @ sentence.transpose(1, 2)
        means = self.weights(scores, mask).to(sentence.dtype) @ sentence
        return torch.cat([words, means], -1)
