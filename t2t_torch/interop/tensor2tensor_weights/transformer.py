"""Hyperparameters and weights of tensor2tensor's Transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.errors import CheckpointError
from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, checked_hparams, is_training_state

_SUBLAYERS = {
    "self_attention": "attention",
    "encdec_attention": "memory_attention",
    "ffn": "feed_forward",
}
_NORMS = {"layer_norm_scale": "weight", "layer_norm_bias": "bias"}
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
_TABLES = {
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
    transformer = registry.model("transformer").HParams
    fields = transformer.model_fields.keys() - {"norm_type"}
    expected = {  # other values change the function or the weights
        name: known.values
        for name, known in transformer.unsupported.items()
        if known.reads == "model" and name not in fields
    }
    expected |= {"loss": ({},), **(must_be or {})}
    if values.get("prepend_mode", "none") != "none":
        del expected["weights_fn"]  # tensor2tensor itself sets it to the weights that we use
    settings = transformer.model_fields.keys() | transformer.unsupported.keys()
    kind = registry.model(model).HParams
    known = {k: v for k, v in values.items() if k in kind.model_fields or k not in settings}
    known |= {k: v for k, v in values.items() if k in expected}
    hparams = checked_hparams(model, known, expected)
    if not variables:
        return hparams
    has_space = any(name.endswith("target_space_embedding/kernel") for name in variables)
    changes: dict[str, Any] = {"use_target_space_embedding": has_space}
    if model == "transformer" and not any("/body/encoder/" in name for name in variables):
        changes = {"encode_inputs": False} if values.get("prepend_mode") != "none" else {}
    return hparams.replace(**changes) if changes else hparams


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    parts: dict[str, dict[int, Array]] = {}
    unknown = []
    for name, value in variables.items():
        if "/targets_bottom/real/" in name:  # of a target that no model reads
            continue
        place = _place(name)
        if place is None:
            unknown.append(name)
            continue
        for ours in place[0]:
            parts.setdefault(ours, {})[place[1]] = _as_ours(name, value)
    unknown = [name for name in unknown if not is_training_state(name)]
    if unknown:
        raise CheckpointError(
            "not variables of a Transformer that we know: " + ", ".join(unknown[:10])
        )
    return {
        name: torch.from_numpy(np.concatenate([pieces[i] for i in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def _place(name: str) -> tuple[tuple[str, ...], int] | None:
    """Returns our names of a variable, and the index of its part; None if it is unknown."""
    if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
        return (_TABLES[match[1]], int(match[2])) if match[1] in _TABLES else None
    if name.endswith("body/target_space_embedding/kernel"):
        return ("target_space",), 0
    top = r"(?:class_label_modality_\d+_\d+/dense|reg_top_ffn/model_top)/(kernel|bias)$"
    if match := re.search(top, name):
        return (f"modalities.targets.top.{'weight' if match[1] == 'kernel' else 'bias'}",), 0
    if match := re.search(r"body/(encoder|decoder)/layer_prepostprocess/layer_norm/(\w+)$", name):
        return (f"{match[1]}_output.norm.{_NORMS[match[2]]}",), 0
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
        return f"{sublayer}_{where}.norm.{_NORMS[match[2]]}", 0
    if match := re.fullmatch(r"(conv[12])/(kernel|bias)", name):
        kind = "weight" if match[2] == "kernel" else "bias"
        return f"{sublayer}.{_LINEARS[match[1]]}.{kind}", 0
    relative = r"multihead_attention/dot_product_attention_relative/relative_positions_(\w+)/.+"
    if match := re.fullmatch(relative, name):
        return f"{sublayer}.relative.{match[1]}.weight", 0
    if match := re.fullmatch(r"multihead_attention/(\w+)/kernel", name):
        ours = _PROJECTIONS.get((sublayer, match[1]))
        return ours and (f"{sublayer}.{ours[0]}.weight", ours[1])
    return None


def _as_ours(name: str, value: Array) -> Array:
    """Returns a kernel [in, out] transposed to torch's [out, in]; embeddings are unchanged."""
    is_kernel = name.endswith("/kernel") and "target_space" not in name
    is_kernel |= "relative_positions_values" in name  # here a map from attention weights
    return np.ascontiguousarray(value.T if is_kernel else value, dtype=np.float32)
