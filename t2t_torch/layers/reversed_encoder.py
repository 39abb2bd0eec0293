"""The LSTM encoder of sequence to sequence models, which reads from right to left.

Sutskever et al. 2014, arXiv:1409.3215, section 3.3: what is written first is then near to what was
read last.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.recurrent import LSTM, Memory, backward_places, turned
from t2t_torch.layers.tokens import Tokens, texts_of
from t2t_torch.token_hparam import TokenHParams


class Encoded(NamedTuple):
    """What an encoder has found.

    Attributes:
      outputs: [B, S, H], each at the place of its token.
      mask: where there are tokens, [B, S] bool.
      memory: of each layer after the first token, which is read last.
    """

    outputs: Tensor
    mask: Tensor
    memory: Memory


class ReversedEncoder(nn.Module):
    """Layers of LSTM over the tokens of a text, the last one first.

    Args:
      features: the problem's; its one input that is a text is read.
      hparams: sizes.
      dropout: probability of zeroing a unit that a layer reads.
    """

    def __init__(self, features: Features, hparams: TokenHParams, dropout: float) -> None:
        super().__init__()
        self.text = texts_of(features)[0]
        self.tokens = Tokens(features, hparams, self.text)
        self.dropout = Dropout(dropout)
        self.lstm = LSTM(
            self.tokens.size, hparams.hidden_size, hparams.num_hidden_layers, dropout=dropout
        )

    def forward(self, features: dict[str, Tensor]) -> Encoded:
        """Returns what is found in what `T2TModel.bottom` gives."""
        mask = features[f"{self.text}_mask"]
        backward = backward_places(mask)
        x = self.dropout(turned(self.tokens(features), backward))
        outputs, memory = self.lstm.run(x, mask)
        return Encoded(turned(outputs, backward), mask, memory)
