"""Hyperparameters of tensor2tensor's attention_lm, models/research/attention_lm.py."""

from __future__ import annotations

from t2t_torch.hparams.transformer_lm import TransformerLmHParams
from t2t_torch.registry import register_hparams


class AttentionLmHParams(TransformerLmHParams):
    """Language model with post-norm layers."""


@register_hparams
def attention_lm_base() -> AttentionLmHParams:
    """Six post-norm layers of 1024."""
    return AttentionLmHParams().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=8,
        num_hidden_layers=6,
        batch_size=8192,
        max_length=256,
        clip_grad_norm=0.0,
        optimizer_adam_epsilon=1e-9,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        learning_rate_decay_scheme="noam",
        learning_rate=0.1,
        learning_rate_warmup_steps=2000,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
        label_smoothing=0.0,
    )


@register_hparams
def attention_lm_small() -> AttentionLmHParams:
    """Four layers of 512 with more dropout."""
    return attention_lm_base().replace(
        num_hidden_layers=4, hidden_size=512, filter_size=2048, layer_prepostprocess_dropout=0.5
    )


@register_hparams
def attention_lm_tiny() -> AttentionLmHParams:
    """Two layers of 128, for tests and quick trials."""
    return attention_lm_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4, batch_size=2048
    )
