"""Sequence-to-sequence model: a stack of LSTM in each direction, and an LSTM decoder.

tensor2tensor's models/lstm.py; converted weights give identical logits.
"""

from __future__ import annotations

from typing import Any

from t2t_torch.features import Features
from t2t_torch.layers.initialization import initialize_lstm
from t2t_torch.layers.tokens import TwoWayLSTMEncoder
from t2t_torch.models.lstm_seq2seq import LSTMSeq2seq
from t2t_torch.registry import register_model


@register_model
class LSTMSeq2seqBidirectionalEncoder(LSTMSeq2seq):
    """`lstm_seq2seq` with `hidden_size` units of each direction, and twice as many of the decoder.

    Sets: those of `lstm_seq2seq`.
    """

    def __init__(self, hparams: Any, features: Features) -> None:
        super().__init__(hparams.of_decoder(), features)
        self.hparams = hparams
        if features.has_inputs:
            self.encoder = TwoWayLSTMEncoder(features, hparams, hparams.dropout)
            initialize_lstm(self.encoder, hparams)
