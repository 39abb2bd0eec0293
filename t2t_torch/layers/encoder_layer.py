"""A layer of a Transformer's encoder."""

from __future__ import annotations

from torch import Tensor, nn

from t2t_torch.hparam import HParams
from t2t_torch.layers.attention import SelfAttention
from t2t_torch.layers.feed_forward import FeedForward
from t2t_torch.layers.sublayer import Postprocess, Preprocess


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network.  Vaswani et al. 2017, section 3.1.

    Args:
      hparams: hidden_size, and what stands before and after each sublayer.
      num_heads: N.
      filter_size: F.
      attention_dropout: probability of zeroing an attention weight.
      relu_dropout: probability of zeroing a unit inside the feed-forward network.
      max_relative_position: of `SelfAttention`.
    """

    def __init__(
        self,
        hparams: HParams,
        *,
        num_heads: int,
        filter_size: int,
        attention_dropout: float,
        relu_dropout: float,
        max_relative_position: int = 0,
    ) -> None:
        super().__init__()
        self.attention_before = Preprocess(hparams)
        self.attention = SelfAttention(
            hparams.hidden_size, num_heads, attention_dropout, max_relative_position
        )
        self.attention_after = Postprocess(hparams)
        self.feed_forward_before = Preprocess(hparams)
        self.feed_forward = FeedForward(hparams.hidden_size, filter_size, relu_dropout)
        self.feed_forward_after = Postprocess(hparams)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]; `mask` [B, 1, 1 or S, S] bool."""
        x = self.attention_after(x, self.attention(self.attention_before(x), mask))
        return self.feed_forward_after(x, self.feed_forward(self.feed_forward_before(x)))
