"""The same Transformer in Hugging Face transformers: MarianMTModel, with our weights.

Marian is post-norm with sinusoids, as our model is under `multi30k.ARCHITECTURE`.  What it has
more, biases around attention, is zero.  Its padding row is zero, which is our first decoder input;
its softmax has its own copy of the table where that row must not be (`tied=False`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from t2t_torch.hparams.transformer import TransformerHParams
from t2t_torch.layers.transformer_layer import sinusoids
from t2t_torch.text.encoder import EOS, PAD

_POSITIONS = 512


def marian(
    hparams: TransformerHParams, vocab_size: int, *, tied: bool = True, attention: str = "sdpa"
) -> MarianMTModel:
    """Returns the model with random weights.

    Args:
      hparams: `multi30k.hparams()`.
      vocab_size: of both sides.
      tied: whether softmax and embedding share one table.
      attention: transformers' `attn_implementation`.
    """
    layers, heads, width = hparams.num_hidden_layers, hparams.num_heads, hparams.filter_size
    config = MarianConfig(
        vocab_size=vocab_size,
        d_model=hparams.hidden_size,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=width,
        decoder_ffn_dim=width,
        activation_function="relu",
        dropout=hparams.layer_prepostprocess_dropout,
        attention_dropout=hparams.attention_dropout,
        activation_dropout=hparams.relu_dropout,
        max_position_embeddings=_POSITIONS,
        init_std=hparams.hidden_size**-0.5,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        tie_word_embeddings=tied,
        attn_implementation=attention,
    )
    return MarianMTModel(config)


@torch.no_grad()
def take_weights(model: MarianMTModel, weights: dict[str, Tensor]) -> None:
    """Gives the model our weights, so that its logits are ours (id 0's aside, where tied).

    Args:
      model: from `marian`.
      weights: our model's `state_dict()`.
    """
    table = weights["modalities.targets.bottom.weight"]
    if not model.config.tie_word_embeddings:
        model.lm_head.weight.copy_(table)
    parts = model.model
    for embedding in (parts.shared, parts.encoder.embed_tokens, parts.decoder.embed_tokens):
        embedding.weight.copy_(table)
        embedding.weight[PAD] = 0.0
    signal = sinusoids(torch.arange(_POSITIONS), table.size(1))
    for stack, name in ((parts.encoder, "encoder"), (parts.decoder, "decoder")):
        stack.embed_positions.weight.copy_(signal)
        for index, layer in enumerate(stack.layers):
            _take_layer(layer, weights, f"{name}.{index}.")


@torch.no_grad()
def check_same_function(ours: nn.Module, theirs: MarianMTModel, batch: dict[str, Tensor]) -> None:
    """Checks that both give the same logits, id 0's aside: its row may be zero in theirs.

    Raises:
      AssertionError: they do not.
    """
    before = ours.training, theirs.training
    a = ours.eval()(batch).logits["targets"]  # [B, T, V]
    b = theirs.eval()(
        input_ids=batch["inputs"],
        attention_mask=(batch["inputs"] != PAD).long(),
        decoder_input_ids=torch.nn.functional.pad(batch["targets"], (1, -1)),
        use_cache=False,
    ).logits
    present = batch["targets"] != PAD
    torch.testing.assert_close(a[present][:, 1:], b[present][:, 1:], atol=2e-3, rtol=1e-3)
    ours.train(before[0])
    theirs.train(before[1])


def _take_layer(layer: Any, weights: dict[str, Tensor], prefix: str) -> None:
    def copy(module: Any, weight: Tensor, bias: Tensor | None = None) -> None:
        module.weight.copy_(weight)
        module.bias.copy_(torch.zeros_like(module.bias) if bias is None else bias)

    def whole(module: Any, name: str) -> None:
        copy(module, weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"])

    def attention(module: Any, name: str, projected: list[str]) -> None:
        maps = [
            part for key in projected for part in _split(weights[f"{prefix}{name}.{key}.weight"])
        ]
        for projection, weight in zip(
            (module.q_proj, module.k_proj, module.v_proj), maps, strict=True
        ):
            copy(projection, weight)
        copy(module.out_proj, weights[f"{prefix}{name}.output.weight"])
        whole(norms[name], f"{name}_after.norm")

    norms = {"attention": layer.self_attn_layer_norm}
    attention_of = {"attention": (layer.self_attn, ["query_key_value"])}
    if hasattr(layer, "encoder_attn"):
        norms["memory_attention"] = layer.encoder_attn_layer_norm
        attention_of["memory_attention"] = (layer.encoder_attn, ["query", "key_value"])
    for name, (module, projected) in attention_of.items():
        attention(module, name, projected)
    whole(layer.fc1, "feed_forward.inner")
    whole(layer.fc2, "feed_forward.outer")
    whole(layer.final_layer_norm, "feed_forward_after.norm")


def _split(weight: Tensor) -> tuple[Tensor, ...]:
    """Cuts side-by-side maps apart.  [parts * H, H] -> parts of [H, H]."""
    return weight.split(weight.size(1))
