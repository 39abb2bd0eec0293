"""Text classifier: bidirectional LSTM with several hops of self-attention over its states.

Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", arXiv:1703.03130.
"""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_attention_classifier import BilstmAttentionClassifierHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import AttentionPooling, hop_penalty
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class BilstmAttentionClassifier(T2TModel):
    """Bidirectional LSTMs, self-attention hops and a ReLU layer.

    Attributes:
      attention: self-attention; `--hooks=attention_maps` plots its `weights`.
    """

    HParams = BilstmAttentionClassifierHParams
    hparams: BilstmAttentionClassifierHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: BilstmAttentionClassifierHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        rate = hparams.layer_prepostprocess_dropout
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = Dropout(rate)
        self.lstm = LSTM(
            self.tokens.size,
            hparams.lstm_size,
            hparams.num_hidden_layers,
            bidirectional=True,
            dropout=rate,
        )
        self.attention = AttentionPooling(
            self.lstm.size, hparams.attention_size, hparams.attention_hops
        )
        width = hparams.attention_hops * self.lstm.size + dense_width(features, hparams)
        self.inner = nn.Linear(width, hparams.hidden_size)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H], and in TRAIN the penalty of hops."""
        mask = features[self._text].mask
        hidden = self.lstm(self.dropout(self.tokens(features)), mask)  # [B, S, 2 lstm_size]
        means, weights = self.attention(hidden, mask)
        summary = beside_dense(self.dropout(means), self._dense, features)
        summary = self.dropout(F.relu(self.inner(summary)))
        penalty = None
        if self.training and self.hparams.attention_penalty:
            penalty = self.hparams.attention_penalty * hop_penalty(weights)  # [B]
        return dict.fromkeys(self.features.targets, Hidden(summary, penalty=penalty))
