"""Hyperparameters and weights of tensor2tensor's LSTM models.

tensor2tensor's attention includes the padding of a batch, ours does not: they are equal for inputs
without padding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    MODALITIES,
    Array,
    checked_hparams,
    refuse_unknown,
)
from t2t_torch.interop.tensor2tensor_weights.transformer import TABLES

_MUST_BE = {
    **MODALITIES,
    **dict.fromkeys(("area_key_mode", "area_value_mode"), ("none",)),
    **dict.fromkeys(("max_area_height", "max_area_width", "memory_height"), (1,)),
    "num_area_layers": (0,),
}
_TABLES = {**TABLES, "shared": (*TABLES["shared"], *TABLES["softmax"])}
_FORGET_BIAS = 1.0  # added by TensorFlow's LSTMCell at each step


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    return checked_hparams(model, values, _MUST_BE)


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables of an LSTM model as weights by our names."""
    tables: dict[str, dict[int, Array]] = {}
    weights: dict[str, Array] = {}
    unknown = []
    for name, value in variables.items():
        if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
            for ours in _TABLES.get(match[1], ()):
                tables.setdefault(ours, {})[int(match[2])] = value
            continue
        found = dict(_weights(name, value, variables))
        weights |= found
        if not found:
            unknown.append(name)
    refuse_unknown(unknown, "an LSTM model")
    for ours, pieces in tables.items():
        weights[ours] = np.concatenate([pieces[number] for number in sorted(pieces)])
    return {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()}


def _weights(
    name: str, value: Array, variables: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yields the weights of a variable with our names; nothing if it is unknown."""
    cell = re.search(
        r"/(encoder|decoder)/rnn/(attention_wrapper/)?multi_rnn_cell/cell_(\d+)/lstm_cell/(\w+)$",
        name,
    )
    both = re.search(r"/bidirectional_rnn/(fw|bw)/multi_rnn_cell/cell_(\d+)/lstm_cell/(\w+)$", name)
    if both:
        stack = 0 if both[1] == "fw" else 1
        yield from _of_cell(both[3], value, f"encoder.stacks.{stack}.layers.{both[2]}.0", "_l0")
    elif cell:
        ours, suffix = f"{cell[1]}.{cell[3]}", ""
        if not cell[2]:  # layers over a whole sequence, not single steps
            where = "encoder.lstm" if cell[1] == "encoder" else "decoder"
            ours, suffix = f"{where}.layers.{cell[3]}.0", "_l0"
        yield from _of_cell(cell[4], value, ours, suffix)
    elif name.endswith("/memory_layer/kernel"):
        yield "attention.memory_layer.weight", value.T
    elif name.endswith("/query_layer/kernel"):
        yield "attention.query_layer.weight", value.T
    elif match := re.fullmatch(r"(.*/bahdanau_attention)(?:_\d+)?/attention_v", name):
        heads = [n for n in variables if n.startswith(match[1]) and n.endswith("/attention_v")]
        heads.sort(key=lambda one: (len(one), one))  # attention, attention_1 ... attention_10
        yield "attention.match.weight", np.stack([variables[head] for head in heads])
    elif match := re.search(r"/attention_layer(?:_(\d+))?/kernel$", name):
        yield f"attention.layers.{match[1] or 0}.weight", value.T
    elif match := re.search(r"class_label_modality_\d+_\d+/dense/(kernel|bias)$", name):
        yield f"modalities.targets.top.{'bias' if match[1] == 'bias' else 'weight'}", value.T
    elif match := re.search(r"/decoder/dense/(kernel|bias)$", name):
        yield f"join_heads.{'bias' if match[1] == 'bias' else 'weight'}", value.T


def _of_cell(kind: str, value: Array, ours: str, suffix: str) -> Iterator[tuple[str, Array]]:
    """Yields the weights of an LSTMCell: its gates are input, cell, forget and output; torch has
    the second and third swapped.
    """
    gates, cells, forget, output = np.split(value, 4, axis=-1)
    if kind == "bias":
        forget = forget + _FORGET_BIAS
    turned = np.concatenate([gates, forget, cells, output], axis=-1)
    if kind == "bias":
        yield f"{ours}.bias_ih{suffix}", turned
        yield f"{ours}.bias_hh{suffix}", np.zeros_like(turned)
        return
    size = turned.shape[-1] // 4
    yield f"{ours}.weight_ih{suffix}", turned[:-size].T
    yield f"{ours}.weight_hh{suffix}", turned[-size:].T
