"""Reads hyperparameters and weights of tensor2tensor's LSTM models into ours.

They are `lstm_seq2seq` and `lstm_seq2seq_attention`; variables are known by their TensorFlow names,
for example from an `.npz`:

    hparams = lstm_hparams("lstm_seq2seq_attention", json.load(open("hparams.json")))
    model = LSTMSeq2seqAttention(hparams, features)
    load_lstm_variables(model, dict(numpy.load("variables.npz")))

tensor2tensor's attention also looks at the padding of a batch, and ours does not: of inputs without
padding both compute the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.interop.variables import is_training_state, load_all

Array = npt.NDArray[np.float32]

# The values with which tensor2tensor computes what our models compute.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "area_key_mode": ("none",),
    "area_value_mode": ("none",),
    "bottom": ({},),
    "factored_logits": (False,),
    "loss": ({},),
    "max_area_height": (1,),
    "max_area_width": (1,),
    "memory_height": (1,),
    "name": ({},),
    "num_area_layers": (0,),
    "prepend_mode": ("none",),
    "top": ({},),
    "weights_fn": ({},),
}
_TABLES = {
    "input_emb": ("modalities.inputs.bottom.weight",),
    "target_emb": ("modalities.targets.bottom.weight",),
    "softmax": ("modalities.targets.top.weight",),
    "shared": (
        "modalities.inputs.bottom.weight",
        "modalities.targets.bottom.weight",
        "modalities.targets.top.weight",
    ),
}
_FORGET_BIAS = 1.0  # which TensorFlow's LSTMCell adds at each step


def lstm_hparams(model: str, values: Mapping[str, Any]) -> HParams:
    """Reads tensor2tensor's hyperparameters, as its `hparams.json` holds them.

    Those that only steer its machinery of training have no place in ours and are left out.

    Args:
      model: "lstm_seq2seq" or "lstm_seq2seq_attention".
      values: by tensor2tensor's names.

    Raises:
      HParamsError: a value asks for another model than ours, or is out of bounds; all are named.
    """
    other = [
        f"{name}={values[name]!r} (expected {expected[0]!r})"
        for name, expected in _MUST_BE.items()
        if name in values and values[name] not in expected
    ]
    if other:
        raise HParamsError(
            f"this tensor2tensor model computes what our {model} does not: " + ", ".join(other)
        )
    kind = registry.model(model).HParams
    unknown = values.keys() - kind.model_fields.keys() - kind.unsupported
    if unknown:
        raise HParamsError(
            f"tensor2tensor's {model} has no hyperparameter {', '.join(sorted(unknown))}. "
            "Expected the contents of an hparams.json of tensor2tensor 1.15."
        )
    kept = {k: v for k, v in values.items() if k in kind.model_fields and k not in _MUST_BE}
    return kind().replace(**kept).signed("tensor2tensor")


def load_lstm_variables(model: nn.Module, variables: Mapping[str, Array]) -> None:
    """Loads the trainable variables of tensor2tensor's model.

    Args:
      model: ours, made from the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters may be among them.

    Raises:
      CheckpointError: a variable has no place in the model, a weight of the model is not among
        them, or a shape differs.
    """
    tables: dict[str, dict[int, Array]] = {}
    weights: dict[str, Array] = {}
    strangers = []
    for name, value in variables.items():
        if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
            for ours in _TABLES.get(match[1], ()):
                tables.setdefault(ours, {})[int(match[2])] = value
            continue
        found = dict(_weights(name, value, variables))
        weights |= found
        if not found and not is_training_state(name):
            strangers.append(name)
    if strangers:
        raise CheckpointError(
            "not variables of an LSTM model that we know: " + ", ".join(strangers[:10])
        )
    for ours, pieces in tables.items():
        weights[ours] = np.concatenate([pieces[number] for number in sorted(pieces)])
    if "modalities.inputs.bottom.weight" not in model.state_dict():
        weights.pop("modalities.inputs.bottom.weight", None)  # a language model has no inputs
    load_all(
        model,
        {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()},
    )


def _weights(
    name: str, value: Array, variables: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yields our names and weights of a variable; nothing if it is unknown."""
    cell = re.search(
        r"/(encoder|decoder)/rnn/(attention_wrapper/)?multi_rnn_cell/cell_(\d+)/lstm_cell/(\w+)$",
        name,
    )
    if cell:
        ours, suffix = f"{cell[1]}.{cell[3]}", ""
        if not cell[2]:  # layers of a whole sequence, not of one step
            stack = "encoder.lstm" if cell[1] == "encoder" else "decoder"
            ours, suffix = f"{stack}.layers.{cell[3]}.0", "_l0"
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
    elif match := re.search(r"/decoder/dense/(kernel|bias)$", name):
        yield f"join_heads.{'bias' if match[1] == 'bias' else 'weight'}", value.T


def _of_cell(kind: str, value: Array, ours: str, suffix: str) -> Iterator[tuple[str, Array]]:
    """Yields the weights of an LSTMCell: its gates are input, cell, forget and output, the second
    and the third of which torch has the other way round.
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
