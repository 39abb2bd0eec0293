"""Taggers: LSTMs or convolutions over the words of a text, with a softmax or a CRF on top."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn
from torch.nn import functional as F

from t2t_torch.features import Features, Real, Tags, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_slot_attention_tagger import BilstmSlotAttentionTaggerHParams
from t2t_torch.hparams.bilstm_tagger import BilstmTaggerHParams
from t2t_torch.hparams.bsequential_cnn_tagger import BsequentialCnnTaggerHParams
from t2t_torch.layers.convolution import ContextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import SlotAttention
from t2t_torch.layers.tokens import TokenLSTM, Tokens, WordOutputs, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


class _Tagger(T2TModel):
    """Base class of models that predict the tag of each word of a text.

    Attributes:
      parts: number of vectors of `hidden_size` that a word's vector is made of.
    """

    produces = (Tags,)
    reads = (Text, OfWords, Real)
    texts = (1, 1)
    parts: ClassVar[int] = 2

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of a word's vector and of dense inputs."""
        return cls.parts * int(hparams.hidden_size) + dense_width(features, hparams)


@register_model
class BilstmTagger(_Tagger):
    """Predicts the tag of a word from the states of a bidirectional LSTM.

    Huang et al. 2015, "Bidirectional LSTM-CRF Models for Sequence Tagging", arXiv:1508.01991; with
    characters Lample et al. 2016, arXiv:1603.01360, and Ma and Hovy 2016, arXiv:1603.01354.
    """

    HParams = BilstmTaggerHParams
    hparams: BilstmTaggerHParams

    def __init__(self, hparams: BilstmTaggerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (text,) = texts_of(features)
        self.lstm = TokenLSTM(features, hparams, text)
        self.outputs = WordOutputs(features, text)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the states of both directions at the first id of each word.  [B, W, 2 H]."""
        return self.outputs(self.outputs.at_words(self.lstm(features), features), features)


@register_model
class BilstmSlotAttentionTagger(_Tagger):
    """Predicts the tag of a word from its state and an attention-weighted mean of states.

    Of PyText, Aly et al. 2018, arXiv:1812.08729; the attention after Liu and Lane 2016,
    arXiv:1609.01454.
    """

    HParams = BilstmSlotAttentionTaggerHParams
    hparams: BilstmSlotAttentionTaggerHParams

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

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns a vector of each word and its attention context.  [B, W, 2 H]."""
        mask = features[self._text].mask
        hidden = self.lstm(features)
        words = self.outputs.at_words(hidden, features)
        words = self.lstm.dropout(F.relu(self.narrow(self.attention(words, hidden, mask))))
        return self.outputs(words, features)


@register_model
class BsequentialCnnTagger(_Tagger):
    """Predicts the tag of a word from the words before, after and around it.

    Vu 2016, "Sequential Convolutional Neural Networks for Slot Filling in Spoken Language
    Understanding", arXiv:1606.07783.  As in PyText the scores are trained as logits; the paper's
    own loss is a ranking one.
    """

    HParams = BsequentialCnnTaggerHParams
    hparams: BsequentialCnnTaggerHParams
    parts = 3

    def __init__(self, hparams: BsequentialCnnTaggerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (text,) = texts_of(features)
        self.tokens = Tokens(features, hparams, text)
        self.outputs = WordOutputs(features, text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.convolution = ContextConvolution(self.tokens.size, hparams)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the convolutions at the first id of each word.  [B, W, 3 H]."""
        hidden = self.convolution(self.dropout(self.tokens(features)))
        return self.outputs(self.outputs.at_words(self.dropout(hidden), features), features)
