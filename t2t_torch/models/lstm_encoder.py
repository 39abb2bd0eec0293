"""Classifier of texts: layers of LSTM that read from the end, and the mean of their outputs.

tensor2tensor's models/lstm.py.  Unlike there, padding is not part of the mean.
"""

from __future__ import annotations

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.lstm_encoder import LSTMEncoderHParams
from t2t_torch.layers import pooling, tokens
from t2t_torch.layers.initialization import initialize, initialize_lstm
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class LSTMEncoder(T2TModel):
    """The mean of the outputs of the last layer, for each target."""

    HParams = LSTMEncoderHParams
    hparams: LSTMEncoderHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords)
    texts = (1, 1)

    def __init__(self, hparams: LSTMEncoderHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.encoder = tokens.SequenceLSTMEncoder(features, hparams, hparams.dropout)
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H]."""
        encoded = self.encoder(features)
        summary = pooling.mean(encoded.outputs, encoded.mask)
        return dict.fromkeys(self.features.targets, Hidden(summary))
