"""Hyperparameters of the Transformer regressor."""

from __future__ import annotations

from t2t_torch.hparams.transformer_encoder import (
    TransformerEncoderHParams,
    transformer_encoder_small,
)
from t2t_torch.registry import register_hparams


class TransformerRegressorHParams(TransformerEncoderHParams):
    """Transformer regressor."""


@register_hparams
def transformer_regressor_small() -> TransformerRegressorHParams:
    """`transformer_encoder_small` for numbers."""
    return TransformerRegressorHParams.starting_from(transformer_encoder_small())
