"""Hyperparameters of tensor2tensor's transformer_moe, models/research/transformer_moe.py.

Its layer type `moe` is missing in tensor2tensor 1.15; here it is `ffn_layer=moe`.
"""

from __future__ import annotations

from typing import NamedTuple

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import with_noam
from t2t_torch.hparams.transformer import TransformerHParams
from t2t_torch.registry import register_hparams

_ATTENTIONS = {"a": "dot_product", "mem": "dot_product", "loc": "local_unmasked"}
_ATTENTIONS["locm"] = "local_mask_right"
_NETWORKS = ("fc", "sep", "sepm", "moe")


class _LayerType(NamedTuple):
    """Kinds of the sublayers of a layer.

    Attributes:
      attention: of self-attention: a, mem, loc or locm.
      network: of the feed-forward sublayer: fc, sep, sepm or moe.
    """

    attention: str
    network: str


class TransformerMoeHParams(TransformerHParams):
    """Transformer with layers of several types."""

    layer_types: str = hp(
        "",
        "Layers of encoder#decoder, separated by /, each attention-network, or in the decoder "
        "attention-a-network: a full attention, loc and locm local attention without and with a "
        "mask of later positions; fc dense, sep and sepm separable convolutions, likewise, moe a "
        "mixture of experts.  Empty: num_hidden_layers of default_att and default_ff.",
    )
    default_att: str = hp("a", "Type of attention where layer_types names none.")
    default_ff: str = hp("fc", "Type of network where layer_types names none.")

    def layers(self, *, of_decoder: bool) -> list[_LayerType]:
        """Returns the types of the layers of encoder or decoder.

        Raises:
          HParamsError: a type is unknown, or sees later positions in the decoder.
        """
        sides = (self.layer_types or "/".join(["-"] * self.num_hidden_layers)).split("#")
        side = sides[-1 if of_decoder else 0]
        types = []
        for layer in filter(None, side.split("/")):
            parts = layer.split("-")
            attention = parts[0] or self.default_att
            network = (parts[-1] if len(parts) > 1 else "") or self.default_ff
            between = parts[1] if len(parts) == 3 else "a"
            allowed = ("a", "mem", "locm") if of_decoder else tuple(_ATTENTIONS)
            networks = ("fc", "sepm", "moe") if of_decoder else _NETWORKS
            if attention not in allowed or network not in networks or between not in ("a", ""):
                raise HParamsError(
                    f"layer_types={self.layer_types}: {layer!r} is no layer of the "
                    f"{'decoder' if of_decoder else 'encoder'}. Attentions: {', '.join(allowed)}; "
                    f"networks: {', '.join(networks)}; an attention to the encoder is a."
                )
            types.append(_LayerType(attention, network))
        return types

    def of_layer(self, kind: _LayerType) -> TransformerMoeHParams:
        """Returns the hyperparameters of a layer."""
        return self.replace(
            self_attention_type=_ATTENTIONS[kind.attention],
            ffn_layer="moe" if kind.network == "moe" else "dense_relu_dense",
        )


@register_hparams
def transformer_moe_base() -> TransformerMoeHParams:
    """Five layers of 512."""
    return with_noam(TransformerMoeHParams()).replace(
        hidden_size=512,
        num_hidden_layers=5,
        max_length=2001,
        max_input_seq_length=2000,
        max_target_seq_length=2000,
        learning_rate_warmup_steps=2000,
        label_smoothing=0.0,
        shared_embedding_and_softmax_weights=True,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_loc_block_length=256,
    )


@register_hparams
def transformer_moe_tiny() -> TransformerMoeHParams:
    """Two layers of 128, the second of each side with experts, for tests and quick trials."""
    return transformer_moe_base().replace(
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        layer_types="a-sep/locm-moe#a-sepm/locm-moe",
        moe_num_experts=4,
    )


@register_hparams
def transformer_moe_8k() -> TransformerMoeHParams:
    """Layers of 1024 with separable convolutions, for long sequences; the decoder masks them."""
    return transformer_moe_base().replace(
        hidden_size=1024,
        batch_size=8192,
        max_length=0,
        eval_drop_long_sequences=True,
        min_length_bucket=256,
        layer_types="a-sep/a-sep/a-sep/a-sep/a-sep#a-sepm/a-sepm/a-sepm/a-sepm/a-sepm",
    )


@register_hparams
def transformer_moe_2k() -> TransformerMoeHParams:
    """`transformer_moe_8k` with experts in the middle of the decoder."""
    return transformer_moe_8k().replace(
        batch_size=2048,
        layer_types="a-sep/a-sep/a-sep/a-sep/a-sep#a-sepm/a-sepm/a-moe/a-sepm/a-sepm",
    )
