"""Tagger: bidirectional LSTM with attention of each word over its sentence.

Of PyText, Aly et al. 2018, arXiv:1812.08729; the attention after Liu and Lane 2016,
arXiv:1609.01454.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional as F

from t2t_torch.features import Features, Real, Tags, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_slot_attention_tagger import BilstmSlotAttentionTaggerHParams
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import SlotAttention
from t2t_torch.layers.tokens import TokenLSTM, WordOutputs, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class BilstmSlotAttentionTagger(T2TModel):
    """Predicts the tag of a word from its state and an attention-weighted mean of states."""

    HParams = BilstmSlotAttentionTaggerHParams
    hparams: BilstmSlotAttentionTaggerHParams
    produces = (Tags,)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: BilstmSlotAttentionTaggerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self.lstm = TokenLSTM(features, hparams, self._text)
        self.outputs = WordOutputs(features, self._text)
        self.attention = SlotAttention(
            self.lstm.size, hparams.slot_attention, hparams.attention_size
        )
        self.narrow = nn.Linear(2 * self.lstm.size, self.lstm.size)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of dense inputs."""
        return 2 * int(hparams.hidden_size) + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns a vector of each word and its attention context.  [B, W, 2 H]."""
        mask = features[self._text].mask
        hidden = self.lstm(features)
        words = self.outputs.at_words(hidden, features)
        words = self.lstm.dropout(F.relu(self.narrow(self.attention(words, hidden, mask))))
        return self.outputs(words, features)
