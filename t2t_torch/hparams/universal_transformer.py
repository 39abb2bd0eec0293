"""Hyperparameters of the Universal Transformer, with tensor2tensor's sets.

Left out are sets that need separable convolutions, simple recurrent units, plain layers before or
after the recurrence, or positions that are shifted at random.
"""

from __future__ import annotations

from t2t_torch.hparam_groups import RecurrenceHParams
from t2t_torch.hparams.transformer import (
    TransformerHParams,
    transformer_base,
    transformer_multi30k,
    transformer_tiny,
)
from t2t_torch.hparams.transformer_encoder import (
    TransformerEncoderHParams,
    transformer_encoder_small,
)
from t2t_torch.registry import register_hparams, register_ranged_hparams
from t2t_torch.search_space import RangedHParams


class UniversalTransformerHParams(RecurrenceHParams, TransformerHParams):
    """Universal Transformer: encoder and decoder, both recurrent in depth."""


def _universal(hparams: TransformerHParams) -> UniversalTransformerHParams:
    """Returns a set of `transformer` with the defaults of the recurrence and as many steps as
    layers."""
    return UniversalTransformerHParams.starting_from(hparams).replace(
        num_rec_steps=hparams.num_hidden_layers,
        act_max_steps=2 * hparams.num_hidden_layers,
        pos="none",
    )


@register_hparams
def universal_transformer_base() -> UniversalTransformerHParams:
    """One layer of 1024, six steps: about the capacity of `transformer_base`."""
    return _universal(transformer_base()).replace(
        hidden_size=1024, filter_size=4096, num_heads=16, layer_prepostprocess_dropout=0.3
    )


@register_hparams
def universal_transformer_big() -> UniversalTransformerHParams:
    """One layer of 2048."""
    return universal_transformer_base().replace(hidden_size=2048, filter_size=8192)


@register_hparams
def universal_transformer_base_fp16() -> UniversalTransformerHParams:
    """One layer of 512 in float16."""
    return universal_transformer_small().replace(activation_dtype="float16")


@register_hparams
def universal_transformer_small() -> UniversalTransformerHParams:
    """One layer of 512."""
    return _universal(transformer_base())


@register_hparams
def universal_transformer_tiny() -> UniversalTransformerHParams:
    """One layer of 128, eight steps."""
    return _universal(transformer_tiny()).replace(num_rec_steps=8)


@register_hparams
def universal_transformer_teeny() -> UniversalTransformerHParams:
    """One layer of 128 with a narrow feed-forward network, ten steps."""
    return _universal(transformer_base()).replace(
        hidden_size=128, filter_size=128, num_heads=2, num_rec_steps=10
    )


@register_hparams
def universal_transformer_tall() -> UniversalTransformerHParams:
    """One layer of 512, 16 steps."""
    return universal_transformer_small().replace(num_rec_steps=16)


@register_hparams
def universal_transformer_multi30k() -> UniversalTransformerHParams:
    """`transformer_multi30k` with one layer, three times, and a wider feed-forward network."""
    return _universal(transformer_multi30k()).replace(filter_size=2048)


def _adaptive(hparams: UniversalTransformerHParams) -> UniversalTransformerHParams:
    return hparams.replace(recurrence_type="act")


@register_hparams
def adaptive_universal_transformer_base() -> UniversalTransformerHParams:
    """`universal_transformer_base` with adaptive computation time."""
    return _adaptive(universal_transformer_base())


@register_hparams
def adaptive_universal_transformer_small() -> UniversalTransformerHParams:
    """`universal_transformer_small` with adaptive computation time."""
    return _adaptive(universal_transformer_small())


@register_hparams
def adaptive_universal_transformer_tiny() -> UniversalTransformerHParams:
    """`universal_transformer_tiny` with adaptive computation time."""
    return _adaptive(universal_transformer_tiny())


@register_hparams
def adaptive_universal_transformer_global_base() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_base`; positions halt together."""
    return adaptive_universal_transformer_base().replace(act_type="global")


@register_hparams
def adaptive_universal_transformer_tall() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_small` with up to 24 steps."""
    return adaptive_universal_transformer_small().replace(
        num_hidden_layers=16, batch_size=1024, act_max_steps=24
    )


@register_hparams
def adaptive_universal_transformer_tall_actlossw0() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_tall` without a loss of its steps."""
    return adaptive_universal_transformer_tall().replace(act_loss_weight=0.0)


@register_hparams
def adaptive_universal_transformer_tall_actlossw001() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_tall` with a smaller loss of its steps."""
    return adaptive_universal_transformer_tall().replace(act_loss_weight=0.001)


@register_hparams
def adaptive_universal_transformer_base_dropout03() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_base` with dropout 0.3 everywhere."""
    return _with_dropout(0.3)


@register_hparams
def adaptive_universal_transformer_base_dropout05() -> UniversalTransformerHParams:
    """`adaptive_universal_transformer_base` with dropout 0.5 everywhere."""
    return _with_dropout(0.5)


def _with_dropout(rate: float) -> UniversalTransformerHParams:
    return adaptive_universal_transformer_base().replace(
        layer_prepostprocess_dropout=rate, attention_dropout=rate, relu_dropout=rate
    )


@register_hparams
def universal_transformer_skip_base() -> UniversalTransformerHParams:
    """`universal_transformer_base`; each step is gated with the inputs."""
    return universal_transformer_base().replace(recurrence_type="skip")


@register_hparams
def universal_transformer_highway_base() -> UniversalTransformerHParams:
    """`universal_transformer_base`; each step is gated with the state before it."""
    return universal_transformer_base().replace(recurrence_type="highway")


@register_hparams
def universal_transformer_dwa_base() -> UniversalTransformerHParams:
    """`universal_transformer_base`; each step reads a sum over the states before."""
    return universal_transformer_base().replace(recurrence_type="dwa")


@register_hparams
def universal_transformer_lstm_base() -> UniversalTransformerHParams:
    """`universal_transformer_base` with an LSTM in place of the feed-forward network."""
    return universal_transformer_base().replace(
        recurrence_type="lstm", add_step_timing_signal=False
    )


@register_hparams
def universal_transformer_gru_base() -> UniversalTransformerHParams:
    """`universal_transformer_base` with a GRU in place of the feed-forward network."""
    return universal_transformer_base().replace(recurrence_type="gru", add_step_timing_signal=False)


@register_hparams
def universal_transformer_lstm_tall() -> UniversalTransformerHParams:
    """`universal_transformer_tall` with an LSTM in place of the feed-forward network."""
    return universal_transformer_tall().replace(
        recurrence_type="lstm", add_step_timing_signal=False
    )


@register_hparams
def universal_transformer_step_sinusoid_timing_tiny() -> UniversalTransformerHParams:
    """`universal_transformer_tiny` with sinusoids of the step."""
    return universal_transformer_tiny().replace(step_timing_signal_type="sinusoid")


def _widths(rhp: RangedHParams) -> None:
    rhp.set_discrete("hidden_size", [1024, 2048, 4096])
    rhp.set_discrete("filter_size", [2048, 4096, 8192])
    rhp.set_discrete("num_heads", [8, 16, 32])
    rhp.set_float("learning_rate", 0.3, 3.0, scale=rhp.LOG_SCALE)
    rhp.set_float("weight_decay", 0.0, 2.0)


@register_ranged_hparams
def universal_transformer_base_range(rhp: RangedHParams) -> None:
    """tensor2tensor's ranges, without separable convolutions."""
    rhp.set_discrete("num_rec_steps", [6, 8, 10])
    _widths(rhp)


@register_ranged_hparams
def adaptive_universal_transformer_base_range(rhp: RangedHParams) -> None:
    """tensor2tensor's ranges, without separable convolutions."""
    rhp.set_discrete("act_max_steps", [8, 16, 32])
    rhp.set_float("act_loss_weight", 0.0, 0.5)
    _widths(rhp)


class UniversalTransformerEncoderHParams(RecurrenceHParams, TransformerEncoderHParams):
    """Universal Transformer encoder."""


@register_hparams
def universal_transformer_encoder_small() -> UniversalTransformerEncoderHParams:
    """`transformer_encoder_small` with one layer of 256, four steps."""
    small = UniversalTransformerEncoderHParams.starting_from(transformer_encoder_small())
    return small.replace(num_rec_steps=4, act_max_steps=4, pos="none")


@register_hparams
def adaptive_universal_transformer_encoder_small() -> UniversalTransformerEncoderHParams:
    """`universal_transformer_encoder_small` with adaptive computation time."""
    return universal_transformer_encoder_small().replace(recurrence_type="act")
