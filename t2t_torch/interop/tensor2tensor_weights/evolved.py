"""Hyperparameters and weights of tensor2tensor's Evolved Transformer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    Array,
    is_training_state,
    refuse_unknown,
    transformer,
)

_MUST_BE: dict[str, tuple[Any, ...]] = {
    "et_encoder_self_attention": (True,),
    "num_trainable_top_decoder_layers": (-1,),
}
# Our sublayer, attention and second norm by tensor2tensor's scope, of encoder and decoder.
_SCOPES = {
    "gated_linear_unit": ("unit", "", ""),
    "conv_branches": ("conv", "", "conv_between"),
    "self_attention": ("attention", "attention", ""),
    "dense_layers": ("dense", "", "dense_between"),
    "16_head_self_attention": ("first", "first_attention", ""),
    "first_attend_to_encoder": ("", "first_memory", ""),
    "second_attend_to_encoder": ("memory", "second_memory", ""),
}
_LINEARS = {
    "gated_linear_unit/dense": "unit_values",
    "gated_linear_unit/dense_1": "unit_gates",
    "conv_branches/dense": "conv_left",
    "conv_branches/standard_conv_3x1": "conv_right",
    "conv_branches/separable_conv_9x1": "conv_final",
    "conv_branches/separable_conv11x1": "conv_left",
    "conv_branches/separable_conv_7x1_1": "conv_right",
    "conv_branches/separable_conv_7x1_2": "conv_final",
    "dense_layers/dense": "dense_inner",
    "dense_layers/dense_1": "dense_outer",
}


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    read = {name: value for name, value in values.items() if name != "print_vars"}
    return transformer.convert_hparams(model, read, variables, _MUST_BE)


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    weights: dict[str, Array] = {}
    parts: dict[str, dict[str, Array]] = {}
    rest, unknown = {}, []
    for name, value in variables.items():
        match = re.search(r"body/(encoder|decoder)/layer_(\d+)/(\w+)/(.+)$", name)
        if match is None or is_training_state(name):
            rest[name] = value
            continue
        layer, scope, inside = f"{match[1]}.{match[2]}.", match[3], match[4]
        if found := re.fullmatch(r"multihead_attention/(q|k|v|output_transform)/kernel", inside):
            parts.setdefault(layer + _SCOPES[scope][1], {})[found[1]] = value.T
        elif (one := _one(scope, inside, value)) is not None:
            weights[layer + one[0]] = one[1]
        else:
            unknown.append(name)
    refuse_unknown(unknown, "an Evolved Transformer")
    for place, part in parts.items():
        weights[f"{place}.output.weight"] = part["output_transform"]
        if place.endswith("_memory"):
            weights[f"{place}.query.weight"] = part["q"]
            weights[f"{place}.key_value.weight"] = np.concatenate([part["k"], part["v"]])
        else:
            joint = np.concatenate([part["q"], part["k"], part["v"]])
            weights[f"{place}.query_key_value.weight"] = joint
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(value, np.float32))
        for name, value in weights.items()
    }
    return tensors | transformer.convert_weights(rest)


def _one(scope: str, inside: str, value: Array) -> tuple[str, Array] | None:
    """Returns our name in a layer and the weight of a variable outside of attention."""
    if norm := re.fullmatch(r"layer_prepostprocess(_1)?/layer_norm/(\w+)", inside):
        before, _, between = _SCOPES[scope]
        place = between if norm[1] else f"{before}_before"
        return f"{place}.norm.{transformer.NORMS[norm[2]]}", value
    module, _, kind = inside.rpartition("/")
    ours = _LINEARS.get(f"{scope}/{module}")
    if ours is None:
        return None
    if kind == "depthwise_kernel":  # [K, E, 1] -> [E, 1, K]
        return f"{ours}.depthwise.weight", value.transpose(1, 2, 0)
    if kind == "pointwise_kernel":
        return f"{ours}.pointwise.weight", value[0].T
    if kind == "bias":
        is_separable = module.startswith("separable")
        return f"{ours}.{'pointwise.' if is_separable else ''}bias", value
    return f"{ours}.weight", value.transpose(2, 1, 0) if value.ndim == 3 else value.T
