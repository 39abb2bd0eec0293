"""Hyperparameters and weights of tensor2tensor's Transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    Array,
    checked_hparams,
    refuse_unknown,
)

_LOCAL_MOE_LOSS = 1e-2
_QUANTIZATION = frozenset(
    """
    beta bottleneck_kind decay ema epsilon noise_dev num_blocks num_residuals num_samples
    random_top_k residual_centroids soft_em use_scales z_size
    """.split()
)
_EXPERTS = {
    "noisy_top_k_gating/w_gate": "router.weight",
    "noisy_top_k_gating/w_noise": "noise.weight",
}
_SUBLAYERS = {
    "self_attention": "attention",
    "encdec_attention": "memory_attention",
    "ffn": "feed_forward",
}
_CONVOLUTIONS = {"conv2d": "first", "conv2d_1": "second", "conv2d_2": "last"}
NORMS = {"layer_norm_scale": "weight", "layer_norm_bias": "bias"}
_SPEECH = "modalities.inputs.bottom.convolutions"
_LINEARS = {"conv1": "inner", "conv2": "outer"}
# (our matrix, index of the part in it) by sublayer and tensor2tensor's name.
_PROJECTIONS = {
    ("attention", "q"): ("query_key_value", 0),
    ("attention", "k"): ("query_key_value", 1),
    ("attention", "v"): ("query_key_value", 2),
    ("attention", "output_transform"): ("output", 0),
    ("memory_attention", "q"): ("query", 0),
    ("memory_attention", "k"): ("key_value", 0),
    ("memory_attention", "v"): ("key_value", 1),
    ("memory_attention", "output_transform"): ("output", 0),
}
TABLES = {
    "input_emb": ("modalities.inputs.bottom.weight",),
    "target_emb": ("modalities.targets.bottom.weight",),
    "softmax": ("modalities.targets.top.weight",),
    "shared": ("modalities.inputs.bottom.weight", "modalities.targets.bottom.weight"),
}


def convert_hparams(
    model: str,
    values: Mapping[str, Any],
    variables: Mapping[str, Array],
    must_be: Mapping[str, tuple[Any, ...]] | None = None,
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`.

    `transformer_encoder` ignores the settings of a decoder.  A model of prepended inputs has no
    encoder if the problem has no `inputs`, which only the variables show.

    Args:
      model: name of the model.
      values: values by tensor2tensor's names.
      variables: variables of the model.
      must_be: further expected values, of a relative of the Transformer.
    """
    values = _with_experts(values)
    transformer = registry.model("transformer").HParams
    fields = transformer.model_fields.keys() - {"norm_type"}
    expected = {  # other values change the function or the weights
        name: known.values
        for name, known in transformer.unsupported.items()
        if known.reads == "model" and name not in fields
    }
    expected |= {"loss": ({},), "gating_type": ("topk",), **(must_be or {})}
    if values.get("prepend_mode", "none") != "none":
        del expected["weights_fn"]  # tensor2tensor itself sets it to the weights that we use
    settings = transformer.model_fields.keys() | transformer.unsupported.keys()
    kind = registry.model(model).HParams
    known = {k: v for k, v in values.items() if k in kind.model_fields or k not in settings}
    known |= {k: v for k, v in values.items() if k in expected}
    known = _in_frames(known)
    hparams = checked_hparams(model, known, expected)
    if not variables:
        return hparams
    has_space = any(name.endswith("target_space_embedding/kernel") for name in variables)
    changes: dict[str, Any] = {"use_target_space_embedding": has_space}
    if model == "transformer" and not any("/body/encoder/" in name for name in variables):
        changes = {"encode_inputs": False} if values.get("prepend_mode") != "none" else {}
    return hparams.replace(**changes) if changes else hparams


def _with_experts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values whose feed-forward sublayers have our names.

    tensor2tensor does not read `moe_loss_coef` for local_moe, and vector quantization only with
    another `gating_type`.
    """
    found = dict(values)
    if found.get("ffn_layer") == "conv_hidden_relu":
        found["ffn_layer"] = "dense_relu_dense"
    if found.get("gating_type") == "topk":
        found = {name: value for name, value in found.items() if name not in _QUANTIZATION}
    if found.get("ffn_layer") == "local_moe":
        found["moe_loss_coef"] = _LOCAL_MOE_LOSS
    return found


def _in_frames(values: dict[str, Any]) -> dict[str, Any]:
    """Returns hyperparameters of speech whose lengths are frames of sounds.

    tensor2tensor's `max_length` is frames times mel filters.  Its speech problems count examples by
    `batch_size`, ours count frames.
    """
    bins = values.get("audio_num_mel_bins")
    if not bins:
        return values
    bins = max(bins, 80)  # the number of its sets
    return {**values, "use_fixed_batch_size": True, "max_length": values["max_length"] // bins}


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    parts: dict[str, dict[int, Array]] = {}
    unknown = []
    for name, value in variables.items():
        if "/targets_bottom/real/" in name or name.endswith("/ffn/means"):  # that no model reads
            continue
        place = _place(name)
        if place is None:
            unknown.append(name)
            continue
        for ours in place[0]:
            parts.setdefault(ours, {})[place[1]] = _as_ours(name, value)
    refuse_unknown(unknown, "a Transformer")
    return {
        name: torch.from_numpy(np.concatenate([pieces[i] for i in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def _place(name: str) -> tuple[tuple[str, ...], int] | None:
    """Returns our names of a variable, and the index of its part; None if it is unknown."""
    if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
        return (TABLES[match[1]], int(match[2])) if match[1] in TABLES else None
    if name.endswith("body/target_space_embedding/kernel"):
        return ("target_space",), 0
    top = r"(?:class_label_modality_\d+_\d+/dense|reg_top_ffn/model_top)/(kernel|bias)$"
    if match := re.search(top, name):
        return (f"modalities.targets.top.{'weight' if match[1] == 'kernel' else 'bias'}",), 0
    if match := re.search(r"speech_recognition_modality/(conv2d(?:_\d)?)/kernel$", name):
        return (f"{_SPEECH}.{_CONVOLUTIONS[match[1]]}.weight",), 0
    if match := re.search(r"speech_recognition_modality/layer_norm(?:_(\d))?/(\w+)$", name):
        return (f"{_SPEECH}.norms.{match[1] or 0}.{NORMS[match[2]]}",), 0
    if match := re.search(r"body/(encoder|decoder)/layer_prepostprocess/layer_norm/(\w+)$", name):
        return (f"{match[1]}_output.norm.{NORMS[match[2]]}",), 0
    match = re.search(r"body/(encoder|decoder)/layer_(\d+)/(\w+)/(.+)$", name)
    if match is None or match[3] not in _SUBLAYERS:
        return None
    sublayer = _SUBLAYERS[match[3]]
    inside = _inside_sublayer(sublayer, match[4])
    return inside and ((f"{match[1]}.{match[2]}.{inside[0]}",), inside[1])


def _inside_sublayer(sublayer: str, name: str) -> tuple[str, int] | None:
    """Like `_place` in a sublayer: "feed_forward", "conv1/bias" -> "feed_forward.inner.bias"."""
    if match := re.fullmatch(r"layer_(prepostprocess|postprocess)/layer_norm/(\w+)", name):
        where = "before" if match[1] == "prepostprocess" else "after"
        return f"{sublayer}_{where}.norm.{NORMS[match[2]]}", 0
    if match := re.fullmatch(r"(conv[12])/(kernel|bias)", name):
        kind = "weight" if match[2] == "kernel" else "bias"
        return f"{sublayer}.{_LINEARS[match[1]]}.{kind}", 0
    relative = r"multihead_attention/dot_product_attention_relative/relative_positions_(\w+)/.+"
    if match := re.fullmatch(relative, name):
        return f"{sublayer}.relative.{match[1]}.weight", 0
    if match := re.fullmatch(r"local_moe/parallel_(\d+)/w_([01])", name):
        return f"{sublayer}.{'outer' if match[2] == '1' else 'inner'}", int(match[1])
    if match := re.fullmatch(r"local_moe/(.+)", name):
        gate = _EXPERTS.get(match[1])
        return None if gate is None else (f"{sublayer}.{gate}", 0)
    if name.endswith("dot_product_self_attention_relative_v2/key_relative_embeddings"):
        return f"{sublayer}.relative.table", 0
    if match := re.fullmatch(r"multihead_attention/(\w+)/kernel", name):
        ours = _PROJECTIONS.get((sublayer, match[1]))
        return ours and (f"{sublayer}.{ours[0]}.weight", ours[1])
    return None


def _as_ours(name: str, value: Array) -> Array:
    """Returns a kernel [in, out] transposed to torch's [out, in]; embeddings are unchanged."""
    if value.ndim == 4:  # a convolution [time, frequency, in, out]
        return np.ascontiguousarray(value.transpose(3, 2, 0, 1), dtype=np.float32)
    is_kernel = name.endswith("/kernel") and "target_space" not in name
    is_kernel |= "relative_positions_values" in name  # here a map from attention weights
    is_kernel |= "noisy_top_k_gating" in name
    if "/local_moe/parallel_" in name:  # one of a table of experts
        value = value[None]
    return np.ascontiguousarray(value.T if is_kernel else value, dtype=np.float32)
