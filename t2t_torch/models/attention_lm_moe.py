"""tensor2tensor's attention_lm_moe: the language model that its published code computes."""

from __future__ import annotations

from t2t_torch.hparams.attention_lm_moe import AttentionLmMoeHParams
from t2t_torch.models.attention_lm import AttentionLm
from t2t_torch.registry import register_model


@register_model
class AttentionLmMoe(AttentionLm):
    """`attention_lm`; with `ffn_layer=moe` its layers have experts."""

    HParams = AttentionLmMoeHParams
    hparams: AttentionLmMoeHParams
