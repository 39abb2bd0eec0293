"""Hyperparameters of the LSTM encoder."""

from __future__ import annotations

from t2t_torch.hparams.lstm_seq2seq import LSTMSeq2seqHParams, lstm_seq2seq, lstm_seq2seq_tiny
from t2t_torch.registry import register_hparams


class LSTMEncoderHParams(LSTMSeq2seqHParams):
    """LSTM encoder."""


@register_hparams
def lstm_encoder_base() -> LSTMEncoderHParams:
    """Two layers of 128; tensor2tensor's `lstm_seq2seq`."""
    return LSTMEncoderHParams.starting_from(lstm_seq2seq())


@register_hparams
def lstm_encoder_tiny() -> LSTMEncoderHParams:
    """One layer of 64, for tests and quick trials."""
    return LSTMEncoderHParams.starting_from(lstm_seq2seq_tiny())
