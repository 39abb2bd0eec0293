"""Sequence-to-sequence model: a stack of LSTM in each direction, and a decoder with attention.

tensor2tensor's models/lstm.py; converted weights give identical logits for inputs without padding.
"""

from __future__ import annotations

from typing import Any

from t2t_torch.features import Features
from t2t_torch.layers.initialization import initialize_lstm
from t2t_torch.layers.tokens import TwoWayLSTMEncoder
from t2t_torch.models.lstm_seq2seq_attention import LSTMSeq2seqAttention
from t2t_torch.registry import register_model


@register_model
class LSTMSeq2seqAttentionBidirectionalEncoder(LSTMSeq2seqAttention):
    """`lstm_seq2seq_attention` with `hidden_size` units of each direction of the encoder, and twice
    as many of the decoder.

    Sets: those of `lstm_seq2seq_attention`.
    """

    def __init__(self, hparams: Any, features: Features) -> None:
        super().__init__(hparams.of_decoder(), features)
        self.hparams = hparams
        self.encoder = TwoWayLSTMEncoder(features, hparams, hparams.dropout)
        initialize_lstm(self.encoder, hparams)
