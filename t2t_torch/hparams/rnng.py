"""Hyperparameters of the recurrent neural network grammar."""

from __future__ import annotations

from typing import Literal

from t2t_torch.features import Feature, TreeFeature
from t2t_torch.hparam_groups import TokenHParams, for_trials, one_cycle, with_adam
from t2t_torch.params import hp
from t2t_torch.registry import register_hparams


class RNNGHParams(TokenHParams):
    """Parser: stack, buffer and history."""

    num_hidden_layers: int = hp(2, "Layers of each LSTM.", low=1, high=10_000)
    composition: Literal["sum", "blstm"] = hp(
        "sum",
        "What a constituent becomes.  sum: a linear map of the sum of its parts; blstm: of what "
        "two LSTMs over label and parts end with.",
    )
    num_encoder_layers: int = hp(
        0,
        "Layers of a bidirectional LSTM that reads the words before the buffer does.  0: the "
        "buffer reads the words' own vectors, as published.",
        low=0,
        high=10_000,
    )
    valid_actions_only: bool = hp(
        False, "Probabilities are over the transitions that may follow, in the loss too."
    )

    def input_width(self, feature: Feature) -> int:
        """Returns the width of a feature's vectors; `hidden_size` for transitions."""
        return (
            self.hidden_size if isinstance(feature, TreeFeature) else super().input_width(feature)
        )


@register_hparams
def rnng_base() -> RNNGHParams:
    """Two layers of 164, words of 200, dropout 0.34, Adam.  PyText, `demo/configs/rnng.json`."""
    return with_adam(RNNGHParams()).replace(
        hidden_size=164,
        embedding_size=200,
        multiply_embedding_mode="none",
        layer_prepostprocess_dropout=0.34,
        label_smoothing=0.0,
        batch_size=1024,
        max_length=256,
        initializer="xavier",
        optimizer_adam_beta2=0.999,
        weight_decay=4e-6,
        clip_grad_norm=5.0,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.001,
    )


@register_hparams
def rnng_top() -> RNNGHParams:
    """For requests with intents and slots, from scratch; transitions may depend on all words."""
    return one_cycle(rnng_base(), 0.002, 100).replace(
        hidden_size=200,
        embedding_size=128,
        num_encoder_layers=1,
        layer_prepostprocess_dropout=0.3,
        word_dropout=0.05,
        batch_size=2048,
        valid_actions_only=True,
    )


@register_hparams
def rnng_treebank() -> RNNGHParams:
    """For phrase structure with few trees: the composition of Dyer et al. 2016, given tags."""
    return one_cycle(rnng_base(), 0.002, 100).replace(
        hidden_size=128,
        embedding_size=64,
        word_label_size=32,
        num_encoder_layers=1,
        composition="blstm",
        layer_prepostprocess_dropout=0.3,
        word_dropout=0.1,
        max_length=0,
        valid_actions_only=True,
    )


@register_hparams
def rnng_tiny() -> RNNGHParams:
    """One layer of 48, for tests and quick trials."""
    return for_trials(rnng_base()).replace(
        hidden_size=48, num_hidden_layers=1, embedding_size=48, layer_prepostprocess_dropout=0.1
    )
