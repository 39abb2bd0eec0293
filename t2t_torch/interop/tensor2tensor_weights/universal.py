"""Hyperparameters and weights of tensor2tensor's Universal Transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, transformer

# What `transformer` checks, and the values of the recurrence that ours does not have.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "add_or_concat_timing_signal": ("add",),
    "add_sru": (False,),
    "gate_ffn_layer": ("dense",),
    "mix_with_transformer": (None, ""),
    "num_mixedin_layers": (0, 1, 2),
    "position_start_index": (None, ""),
    "transformer_ffn_type": ("fc",),
    "use_memory_as_final_state": (False,),
}
_DENSE = {"kernel": "weight", "bias": "bias"}
_LSTM = {
    "input": "input_gate",
    "forget": "forget_gate",
    "output": "output_gate",
    "input_modulation": "modulation",
}
_SCOPE = re.compile(r"(?P<before>.*/body/)(?P<side>encoder|decoder)/universal_transformer_\w+?/")


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    values = dict(values)
    if values.get("recurrence_type") in ("gru", "lstm"):  # these have one layer
        values["num_inrecurrence_layers"] = 1
    return transformer.convert_hparams(model, values, variables, _MUST_BE)


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    weights, plain = {}, {}
    for name, value in variables.items():
        match = _SCOPE.match(name)
        if match is None:
            plain[name] = value
            continue
        side, rest = match["side"], name[match.end() :]
        ours = _of_recurrence(rest)
        if ours is not None:
            array = value.T if rest.endswith("/kernel") else value
            if rest.endswith("_embedding"):  # [steps, 1, 1, H]
                array = value.reshape(len(value), -1)
            array = np.ascontiguousarray(array, np.float32)
            weights[f"{side}_recurrence.{ours}"] = torch.from_numpy(array)
            continue
        rest = re.sub(r"^rec_layer_(\d+)/", r"layer_\1/", rest)
        if not rest.startswith("layer_"):  # gru and lstm have no layer in the name
            rest = f"layer_0/{rest}"
        plain[f"{match['before']}{side}/{rest}"] = value
    return weights | transformer.convert_weights(plain)


def _of_recurrence(name: str) -> str | None:
    """Returns our name of a variable outside of the layers of a block; None for those inside."""
    if name == "layer_embedding":
        return "step_embedding"
    if name == "depth_embedding":
        return "cell.depth_embedding"
    if match := re.fullmatch(r"sigmoid_activation_for_pondering/dense/(kernel|bias)", name):
        return f"halting.{_DENSE[match[1]]}"
    if match := re.fullmatch(r"dense/(kernel|bias)", name):
        return f"cell.weights.{_DENSE[match[1]]}"
    if match := re.fullmatch(r"gru/(update|reset|candidate)/(kernel|bias)", name):
        return f"cell.{match[1]}.{_DENSE[match[2]]}"
    if match := re.fullmatch(r"lstm/(\w+)/(kernel|bias)", name):
        return f"cell.{_LSTM[match[1]]}.{_DENSE[match[2]]}"
    if match := re.fullmatch(r"layer_prepostprocess(_1)?/layer_norm/(\w+)", name):
        return f"cell.{'after' if match[1] else 'before'}.norm.{transformer.NORMS[match[2]]}"
    return None
