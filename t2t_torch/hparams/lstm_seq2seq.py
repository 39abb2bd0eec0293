"""Hyperparameters of the LSTM encoder-decoder, with tensor2tensor's set of models/lstm.py."""

from __future__ import annotations

from typing import TypeVar

from t2t_torch.features import Feature
from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams
from t2t_torch.params import probability
from t2t_torch.registry import register_hparams

_P = TypeVar("_P", bound="LSTMSeq2seqHParams")


class LSTMSeq2seqHParams(TokenHParams):
    """LSTM encoder-decoder: input dropout."""

    num_hidden_layers: int = hp(
        2, "Layers of LSTM, of the encoder and of the decoder.", low=1, high=10_000
    )
    embedding_size: int = hp(
        0, "Width of a token's own vector, read or written.  0: hidden_size.", low=0
    )
    dropout: float = probability(0.2, "Probability of zeroing a unit that an LSTM layer reads.")

    def input_width(self, feature: Feature) -> int:
        """Returns the width of a feature's vectors."""
        if feature.is_text and not self.embedding_size:
            return self.hidden_size
        return super().input_width(feature)

    def of_decoder(self: _P) -> _P:
        """Returns the settings of a decoder over both directions of an encoder: twice the units."""
        return self.replace(
            hidden_size=2 * self.hidden_size, embedding_size=self.embedding_size or self.hidden_size
        )


@register_hparams
def lstm_seq2seq() -> LSTMSeq2seqHParams:
    """Two layers of 128, tensor2tensor's set: a constant learning rate of 0.0002."""
    return LSTMSeq2seqHParams().replace(
        batch_size=1024,
        hidden_size=128,
        num_hidden_layers=2,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
    )


@register_hparams
def lstm_seq2seq_sutskever() -> LSTMSeq2seqHParams:
    """Four layers of 1,000.  Sutskever et al. 2014, arXiv:1409.3215, section 3.4.

    Plain SGD at a rate of 0.7, gradients clipped to a norm of 5, weights uniform in +-0.08.  The
    paper averages the loss over sentences, this library over tokens; the rate is halved from the
    fifth epoch on.
    """
    return lstm_seq2seq().replace(
        hidden_size=1000,
        num_hidden_layers=4,
        dropout=0.0,
        label_smoothing=0.0,
        multiply_embedding_mode="none",
        initializer="uniform",
        initializer_gain=0.8,
        optimizer="sgd",
        learning_rate_schedule="constant",
        learning_rate_constant=0.7,
        clip_grad_norm=5.0,
        batch_size=4096,
    )


@register_hparams
def lstm_seq2seq_tiny() -> LSTMSeq2seqHParams:
    """One layer of 64, for tests and quick trials."""
    return lstm_seq2seq().replace(
        hidden_size=64,
        num_hidden_layers=1,
        dropout=0.1,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.003,
        learning_rate_warmup_steps=10,
        optimizer_adam_beta1=0.9,
    )
