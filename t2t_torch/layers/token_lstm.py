"""A sentence's tokens as an LSTM in both directions has read them."""

from __future__ import annotations

from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.layers.dropout import Dropout, LockedDropout
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.tokens import Tokens
from t2t_torch.token_hparam import TokenHParams


class TokenLSTM(nn.Module):
    """Tokens, layers of LSTM in both directions, dropout before and behind them.

    Args:
      features: the problem's.
      hparams: the widths of the tokens' parts, `hidden_size` of each direction, and the rate of
        dropout, `layer_prepostprocess_dropout`.
      text: the name of the input.
      num_layers: one above the other.
      locked: whether all positions of a sentence lose the same units (Gal and Ghahramani 2016,
        arXiv:1512.05287).

    Attributes:
      size: 2 H, of what a token gets.
      dropout: the one before and behind.
    """

    def __init__(
        self,
        features: Features,
        hparams: TokenHParams,
        text: str,
        *,
        num_layers: int,
        locked: bool,
    ) -> None:
        super().__init__()
        self._text = text
        rate = hparams.layer_prepostprocess_dropout
        self.tokens = Tokens(features, hparams, text)
        self.dropout = LockedDropout(rate) if locked else Dropout(rate)
        self.lstm = LSTM(
            self.tokens.size,
            hparams.hidden_size,
            num_layers,
            bidirectional=True,
            dropout=rate,
            locked=locked,
        )
        self.size = self.lstm.size

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Returns a vector of each token, zeros at padding.  [B, S, 2 H].

        Args:
          features: what `T2TModel.bottom` gives.
        """
        read = self.lstm(self.dropout(self.tokens(features)), features[f"{self._text}_mask"])
        hidden: Tensor = self.dropout(read)
        return hidden
