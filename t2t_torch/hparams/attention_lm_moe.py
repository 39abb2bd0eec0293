"""Hyperparameters of tensor2tensor's attention_lm_moe, models/research/attention_lm_moe.py.

There `moe_layers` has no effect: these sets are of a plain language model.  For experts set
`ffn_layer=moe`.
"""

from __future__ import annotations

from t2t_torch.hparams.attention_lm import AttentionLmHParams, attention_lm_base
from t2t_torch.registry import register_hparams


class AttentionLmMoeHParams(AttentionLmHParams):
    """Language model with post-norm layers, for mixtures of experts."""


@register_hparams
def attention_lm_moe_base() -> AttentionLmMoeHParams:
    """Four post-norm layers of 1024."""
    return AttentionLmMoeHParams.starting_from(attention_lm_base()).replace(
        num_hidden_layers=4, filter_size=2048
    )


@register_hparams
def attention_lm_moe_small() -> AttentionLmMoeHParams:
    """Four layers of 512."""
    return attention_lm_moe_base().replace(hidden_size=512)


@register_hparams
def attention_lm_moe_tiny() -> AttentionLmMoeHParams:
    """`attention_lm_moe_small`, which it differs from in the number of experts only."""
    return attention_lm_moe_small()
