"""Hyperparameters of the Universal Transformer encoder."""

from __future__ import annotations

from t2t_torch.hparam_groups import RecurrenceHParams
from t2t_torch.hparams.transformer_encoder import (
    TransformerEncoderHParams,
    transformer_encoder_small,
)
from t2t_torch.registry import register_hparams


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
