"""The position-wise network between attentions."""

from __future__ import annotations

from torch import Tensor, nn

from t2t_torch.layers.dropout import Dropout


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between.  Vaswani et al. 2017, section 3.3.

    Args:
      hidden_size: H, in and out.
      filter_size: F, in between.
      dropout: probability of zeroing an activation after the ReLU; TRAIN only.
    """

    def __init__(self, hidden_size: int, filter_size: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, filter_size)
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(filter_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        return self.outer(self.dropout(self.inner(x).relu()))
