"""Hyperparameters of the dialogue classifier SeqNN."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, for_trials, with_adam
from t2t_torch.registry import register_hparams


class SeqnnHParams(TokenHParams):
    """SeqNN: the encoder of an utterance, and LSTMs over utterances."""

    num_hidden_layers: int = hp(
        1, "Layers of LSTM, over words and over utterances.", low=1, high=10_000
    )
    utterance_encoder: Literal["cnn", "bilstm"] = hp(
        "cnn",
        "cnn: the greatest value of each filter over an utterance; bilstm: LSTMs both ways "
        "and attention.",
    )
    kernel_sizes: tuple[int, ...] = hp((3, 4), "cnn: words that the filters of each kind see.")
    num_filters: int = hp(100, "cnn: filters of each kind.", low=1)
    lstm_size: int = hp(128, "Units of each direction of an LSTM.", low=1)
    attention_size: int = hp(64, "Units of attention.", low=1)


@register_hparams
def seqnn_base() -> SeqnnHParams:
    """PyText's sizes: 100 filters each of 3 and 4 words, LSTMs of 32, attention of 64 units.

    Aly et al. 2018, arXiv:1812.08729.
    """
    return with_adam(SeqnnHParams.plain()).replace(
        lstm_size=32,
        batch_size=2048,
        max_length=1000,
        layer_prepostprocess_dropout=0.4,
        clip_grad_norm=1.0,
        learning_rate_constant=0.002,
    )


@register_hparams
def seqnn_bilstm() -> SeqnnHParams:
    """LSTMs of 128 over the words of an utterance, and over utterances."""
    return seqnn_base().replace(utterance_encoder="bilstm", lstm_size=128)


@register_hparams
def seqnn_tiny() -> SeqnnHParams:
    """16 filters of each width, for tests and quick trials."""
    return for_trials(seqnn_base()).replace(
        embedding_size=32, num_filters=16, attention_size=16, layer_prepostprocess_dropout=0.2
    )
