"""tensor2tensor's attention_lm: a Transformer language model with post-norm layers."""

from __future__ import annotations

from t2t_torch.hparams.attention_lm import AttentionLmHParams
from t2t_torch.models.transformer_lm import TransformerLm
from t2t_torch.registry import register_model


@register_model
class AttentionLm(TransformerLm):
    """`transformer_lm` with tensor2tensor's sets."""

    HParams = AttentionLmHParams
    hparams: AttentionLmHParams
