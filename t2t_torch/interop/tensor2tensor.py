"""Reads hyperparameters and weights of a tensor2tensor Transformer into ours.

Variables are known by their TensorFlow names, for example from an `.npz`:

    hparams = transformer_hparams(json.load(open("hparams.json")))
    model = Transformer(hparams, dataclasses.replace(features, target_space_id=3))
    load_variables(model, dict(numpy.load("variables.npz")))
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.hparam import HParams

# Weights read from another system's variables: what must fit, and what is passed over.


def load_all(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Loads weights by our names.

    Args:
      model: whose weights they are.
      weights: one for each of the model's.

    Raises:
      CheckpointError: the model has no such weight, or one that is not among them, or a shape
        differs; the first ten are named.
    """
    own = model.state_dict()
    faults = [f"the model has no {name}" for name in sorted(weights.keys() - own.keys())]
    for name, here in own.items():
        if name not in weights:
            faults.append(f"there is no variable for {name}")
        elif weights[name].shape != here.shape:
            shapes = [list(weights[name].shape), list(here.shape)]
            faults.append(f"{name} is {shapes[0]}, the model's is {shapes[1]}")
    if faults:
        raise CheckpointError(
            "the variables do not fit the model:\n  "
            + "\n  ".join(faults[:10])
            + "\nMake the model from the run's own hparams.json and vocabularies."
        )
    model.load_state_dict(weights)


def is_training_state(name: str) -> bool:
    """Whether a TensorFlow variable of tensor2tensor belongs to the optimizer or counts steps."""
    return name.startswith(("training/", "global_step", "losses_avg")) or bool(
        re.search(r"/(Adam(_1)?|Momentum|[vm][rc]?|grad_acc)$", name)
    )


Array = npt.NDArray[np.float32]

# The values with which tensor2tensor computes what our Transformer computes.  Any other value makes
# another function of the same weights, or other weights.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "attention_key_channels": (0,),
    "attention_value_channels": (0,),
    "attention_variables_3d": (False,),
    "area_key_mode": ("none",),
    "area_value_mode": ("none",),
    "bottom": ({},),
    "causal_decoder_self_attention": (True,),
    "factored_logits": (False,),
    "ffn_layer": ("dense_relu_dense",),
    "hard_attention_k": (0,),
    "loss": ({},),
    "max_area_height": (1,),
    "max_area_width": (1,),
    "memory_height": (1,),
    "name": ({},),
    "nbr_decoder_problems": (1,),
    "norm_type": ("layer",),
    "num_area_layers": (0,),
    "position_features": ("",),
    "proximity_bias": (False,),
    "split_targets_chunk_length": (0,),
    "top": ({},),
    "unidirectional_encoder": (False,),
    "weights_fn": ({},),
}

_SUBLAYERS = {
    "self_attention": "attention",
    "encdec_attention": "memory_attention",
    "ffn": "feed_forward",
}
_NORMS = {"layer_norm_scale": "weight", "layer_norm_bias": "bias"}
_LINEARS = {"conv1": "inner", "conv2": "outer"}
# [which of our matrices, which part of it], by the sublayer and tensor2tensor's name.
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


def transformer_hparams(values: Mapping[str, Any]) -> HParams:
    """Reads tensor2tensor's hyperparameters, as its `hparams.json` holds them.

    Those that only steer its machinery of training (shards, summaries, TPUs, the noise shape of
    dropout ...) have no place in ours and are left out.  Whether it had an encoder besides
    prepended inputs is not among them: tensor2tensor leaves it out where the problem has no
    `inputs`.  Then say `.replace(encode_inputs=False)`.

    Args:
      values: by tensor2tensor's names.

    Raises:
      HParamsError: a value asks for another model than ours, or is out of bounds; all are named.
    """
    prepends = values.get("prepend_mode", "none") != "none"
    other = [
        f"{name}={values[name]!r} (expected {expected[0]!r})"
        for name, expected in _MUST_BE.items()
        if name in values
        and values[name] not in expected
        # With prepend_mode tensor2tensor sets weights_fn itself, to what is counted here, too.
        and not (name == "weights_fn" and prepends)
    ]
    if other:
        raise HParamsError(
            "this tensor2tensor model computes what our Transformer does not: " + ", ".join(other)
        )
    kind = registry.model("transformer").HParams
    ours = kind.model_fields.keys()
    unknown = values.keys() - ours - kind.unsupported
    if unknown:
        raise HParamsError(
            f"tensor2tensor's Transformer has no hyperparameter {', '.join(sorted(unknown))}. "
            "Expected the contents of an hparams.json of tensor2tensor 1.15."
        )
    kept = {k: v for k, v in values.items() if k in ours and k not in _MUST_BE}
    if "pos" in kept and kept["pos"] is None:
        kept["pos"] = "none"
    return kind().replace(**kept).signed("tensor2tensor")


def load_variables(model: nn.Module, variables: Mapping[str, Array]) -> None:
    """Loads the trainable variables of a tensor2tensor Transformer.

    Args:
      model: our Transformer, made from the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters may be among them.

    Raises:
      CheckpointError: a variable has no place in the model, a weight of the model is not among
        them, or a shape differs.
    """
    weights = _weights(variables)
    shared = model.state_dict()
    top, bottom = "modalities.targets.top.weight", "modalities.targets.bottom.weight"
    if top not in weights and shared[top].data_ptr() == shared[bottom].data_ptr():
        weights[top] = weights.get(bottom, shared[bottom])
    if "modalities.inputs.bottom.weight" not in shared and "shared" in _table_kinds(variables):
        weights.pop("modalities.inputs.bottom.weight", None)  # a language model has no inputs
    load_all(model, weights)


def _weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Our names and weights of all variables."""
    parts: dict[str, dict[int, Array]] = {}
    strangers = []
    for name, value in variables.items():
        place = _place(name)
        if place is None:
            strangers.append(name)
            continue
        for ours in place[0]:
            parts.setdefault(ours, {})[place[1]] = _as_ours(name, value)
    strangers = [name for name in strangers if not is_training_state(name)]
    if strangers:
        raise CheckpointError(
            "not variables of a Transformer that we know: " + ", ".join(strangers[:10])
        )
    return {
        name: torch.from_numpy(np.concatenate([pieces[i] for i in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def _place(name: str) -> tuple[tuple[str, ...], int] | None:
    """Our names of a variable, and which piece of them it is; None if it is unknown."""
    if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
        return (_TABLES[match[1]], int(match[2])) if match[1] in _TABLES else None
    if name.endswith("body/target_space_embedding/kernel"):
        return ("target_space",), 0
    if match := re.search(r"body/(encoder|decoder)/layer_prepostprocess/layer_norm/(\w+)$", name):
        return (f"{match[1]}_output.norm.{_NORMS[match[2]]}",), 0
    match = re.search(r"body/(encoder|decoder)/layer_(\d+)/(\w+)/(.+)$", name)
    if match is None or match[3] not in _SUBLAYERS:
        return None
    sublayer = _SUBLAYERS[match[3]]
    inside = _inside_sublayer(sublayer, match[4])
    return inside and ((f"{match[1]}.{match[2]}.{inside[0]}",), inside[1])


def _inside_sublayer(sublayer: str, name: str) -> tuple[str, int] | None:
    """As `_place`, inside a sublayer: "feed_forward", "conv1/bias" -> "feed_forward.inner.bias"."""
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
    """TensorFlow's kernels are [in, out], torch's [out, in]; tables are the same."""
    is_kernel = name.endswith("/kernel") and "target_space" not in name
    is_kernel |= "relative_positions_values" in name  # here a map from weights of distances
    return np.ascontiguousarray(value.T if is_kernel else value, dtype=np.float32)


def _table_kinds(variables: Mapping[str, Array]) -> set[str]:
    return {match[1] for name in variables if (match := re.search(r"/(\w+)/weights_\d+$", name))}


# Reads hyperparameters and weights of tensor2tensor's LSTM models into ours.
#
# They are `lstm_seq2seq` and `lstm_seq2seq_attention`; variables are known by their TensorFlow
# names, for example from an `.npz`:
#
#     hparams = lstm_hparams("lstm_seq2seq_attention", json.load(open("hparams.json")))
#     model = LSTMSeq2seqAttention(hparams, features)
#     load_lstm_variables(model, dict(numpy.load("variables.npz")))
#
# tensor2tensor's attention also looks at the padding of a batch, and ours does not: of inputs
# without padding both compute the same.


# The values with which tensor2tensor computes what our models compute.
_LSTM_MUST_BE: dict[str, tuple[Any, ...]] = {
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
_LSTM_TABLES = {
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
        for name, expected in _LSTM_MUST_BE.items()
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
    kept = {k: v for k, v in values.items() if k in kind.model_fields and k not in _LSTM_MUST_BE}
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
            for ours in _LSTM_TABLES.get(match[1], ()):
                tables.setdefault(ours, {})[int(match[2])] = value
            continue
        found = dict(_lstm_weights(name, value, variables))
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


def _lstm_weights(
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
