"""Hyperparameters of the Evolved Transformer, with tensor2tensor's sets."""

from __future__ import annotations

from t2t_torch.hparams.transformer import (
    TransformerHParams,
    transformer_base,
    transformer_big,
    transformer_multi30k,
    transformer_tiny,
)
from t2t_torch.registry import register_hparams


class EvolvedTransformerHParams(TransformerHParams):
    """Evolved Transformer: `filter_size` has no effect, feed-forward layers are 4 hidden_size."""


def _evolved(hparams: TransformerHParams) -> EvolvedTransformerHParams:
    """Returns a set of `transformer` with three and four layers, and a cosine schedule."""
    return EvolvedTransformerHParams.starting_from(hparams).replace(
        num_encoder_layers=3,
        num_decoder_layers=4,
        learning_rate_constant=hparams.learning_rate_constant
        / hparams.learning_rate_warmup_steps**0.5,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay*rsqrt_hidden_size",
    )


@register_hparams
def evolved_transformer_tiny() -> EvolvedTransformerHParams:
    """Layers of 128."""
    return _evolved(transformer_tiny()).replace(
        learning_rate_schedule="constant*single_cycle_cos_decay"
    )


@register_hparams
def evolved_transformer_base() -> EvolvedTransformerHParams:
    """Layers of 512.  So et al. 2019, arXiv:1901.11117, with Adam in place of Adafactor."""
    return _evolved(transformer_base())


@register_hparams
def evolved_transformer_big() -> EvolvedTransformerHParams:
    """Layers of 1024."""
    return _evolved(transformer_big())


@register_hparams
def evolved_transformer_deep() -> EvolvedTransformerHParams:
    """Nine and ten layers of 640."""
    return evolved_transformer_big().replace(
        num_encoder_layers=9, num_decoder_layers=10, hidden_size=640
    )


@register_hparams
def evolved_transformer_multi30k() -> EvolvedTransformerHParams:
    """`transformer_multi30k` with two evolved layers of each side."""
    return EvolvedTransformerHParams.starting_from(transformer_multi30k()).replace(
        num_encoder_layers=2, num_decoder_layers=2
    )
