"""Conversation classifier: encodes each utterance, then the sequence of utterances.

The SeqNN of PyText, Aly et al. 2018, arXiv:1812.08729: utterances are encoded by Kim 2014,
arXiv:1408.5882, or by the self-attention of Lin et al. 2017, arXiv:1703.03130, which is also used
over utterances.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Turns
from t2t_torch.hparams.seqnn import SeqnnHParams
from t2t_torch.layers.convolution import TextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import AttentionPooling
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import EOS


@register_model
class Seqnn(T2TModel):
    """Convolutions or LSTMs over each utterance, then LSTMs and attention over utterances."""

    HParams = SeqnnHParams
    hparams: SeqnnHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Turns, Real)
    texts = (1, 1)

    def __init__(self, hparams: SeqnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.utterance: TextConvolution | AttentiveLSTM
        if hparams.utterance_encoder == "cnn":
            kernels = hparams.kernel_sizes
            self.utterance = TextConvolution(self.tokens.size, kernels, hparams.num_filters)
        else:
            self.utterance = AttentiveLSTM(self.tokens.size, hparams)
        self.conversation = AttentiveLSTM(self.utterance.size, hparams)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of dense inputs."""
        return 2 * int(hparams.lstm_size) + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector of a conversation for each target, [B, H]."""
        words = self.dropout(self.tokens(features))
        words, mask = _turns(words, features[self._text].values)  # [B, U, W, E], [B, U, W]
        there = mask.any(-1)  # [B, U]
        # Utterances of all conversations are one batch, without padding.
        found = self.utterance(words[there], mask[there])  # [utterances, F]
        utterances = found.new_zeros(*there.shape, found.size(-1))
        utterances = utterances.masked_scatter(there[..., None], found)
        whole = self.dropout(self.conversation(self.dropout(utterances), there))
        whole = beside_dense(whole, self._dense, features)
        return dict.fromkeys(self.features.targets, Hidden(whole))


class AttentiveLSTM(nn.Module):
    """Bidirectional LSTMs with attention pooling.

    Args:
      input_size: E, input width.
      hparams: lstm_size, num_hidden_layers, attention_size, dropout between layers.

    Attributes:
      size: output width.
    """

    def __init__(self, input_size: int, hparams: SeqnnHParams) -> None:
        super().__init__()
        self.lstm = LSTM(
            input_size,
            hparams.lstm_size,
            hparams.num_hidden_layers,
            bidirectional=True,
            dropout=hparams.layer_prepostprocess_dropout,
        )
        self.attention = AttentionPooling(self.lstm.size, hparams.attention_size)
        self.size = self.lstm.size

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, E], [B, S] bool -> [B, size]."""
        means: Tensor = self.attention(self.lstm(x, mask), mask).means
        return means


def _turns(words: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Splits conversations into utterances, each of which ends with `EOS`.

    The last one may lack it: a conversation may be truncated.

    Args:
      words: embeddings of words, [B, S, E].
      ids: ids of words, [B, S], 0 at padding.

    Returns:
      Embeddings, [B, U, W, E], and their mask, [B, U, W] bool: at most U utterances of W words.
    """
    present = ids != 0
    ends = (ids == EOS).long()
    turn = ends.cumsum(1) - ends  # [B, S], index of the utterance of each position
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    begins = F.pad(ends, (1, 0))[:, :-1] * place  # start of an utterance, else 0
    place = place - begins.cummax(1).values
    number = int(torch.where(present, turn, 0).max()) + 1
    longest = int(torch.where(present, place, 0).max()) + 1
    # Padding is written to an extra last index, which is removed.
    index = torch.where(present, turn * longest + place, number * longest)
    flat = words.new_zeros(len(words), number * longest + 1, words.size(-1))
    flat = flat.scatter(1, index[..., None].expand_as(words), words)
    mask = torch.zeros(flat.shape[:2], dtype=torch.bool, device=ids.device)
    mask = torch.unflatten(mask.scatter(1, index, True)[:, :-1], 1, (number, longest))
    return torch.unflatten(flat[:, :-1], 1, (number, longest)), mask
