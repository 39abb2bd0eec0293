"""Conversion of hyperparameters and weights of tensor2tensor models.

Variables have their TensorFlow names, for example in an `.npz` file:

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
from t2t_torch.interop.importer import load_all


def is_training_state(name: str) -> bool:
    """Returns True if a tensor2tensor variable belongs to the optimizer or counts steps."""
    return name.startswith(("training/", "global_step", "losses_avg")) or bool(
        re.search(r"/(Adam(_1)?|Momentum|[vm][rc]?|grad_acc)$", name)
    )


Array = npt.NDArray[np.float32]

# The values for which tensor2tensor's Transformer equals ours.  Any other value changes the
# function or the weights.
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


def transformer_hparams(values: Mapping[str, Any]) -> HParams:
    """Returns our hyperparameters for those of tensor2tensor, as stored in its `hparams.json`.

    Hyperparameters that only affect its training infrastructure (shards, summaries, TPUs, the noise
    shape of dropout ...) are dropped.  `values` do not determine whether a model with prepended
    inputs has an encoder: tensor2tensor omits it if the problem has no `inputs`.  In this case use
    `.replace(encode_inputs=False)`.

    Args:
      values: values by tensor2tensor's names.

    Raises:
      HParamsError: a value requires a model that differs from ours, or is out of bounds; all are
        named.
    """
    prepends = values.get("prepend_mode", "none") != "none"
    other = [
        f"{name}={values[name]!r} (expected {expected[0]!r})"
        for name, expected in _MUST_BE.items()
        if name in values
        and values[name] not in expected
        # With prepend_mode tensor2tensor itself sets weights_fn to the weights that we use, too.
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
      model: our Transformer with the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: a variable is unknown to the model, a weight is missing, or a shape differs.
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
    """Returns all variables as weights by our names."""
    parts: dict[str, dict[int, Array]] = {}
    unknown = []
    for name, value in variables.items():
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


def _table_kinds(variables: Mapping[str, Array]) -> set[str]:
    return {match[1] for name in variables if (match := re.search(r"/(\w+)/weights_\d+$", name))}


# Conversion of hyperparameters and weights of tensor2tensor's LSTM models.
#
# They are `lstm_seq2seq` and `lstm_seq2seq_attention`; variables have their TensorFlow names, for
# example in an `.npz` file:
#
#     hparams = lstm_hparams("lstm_seq2seq_attention", json.load(open("hparams.json")))
#     model = LSTMSeq2seqAttention(hparams, features)
#     load_lstm_variables(model, dict(numpy.load("variables.npz")))
#
# tensor2tensor's attention includes the padding of a batch, ours does not: they are equal for
# inputs without padding.


# The values for which tensor2tensor's models equal ours.
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
_FORGET_BIAS = 1.0  # added by TensorFlow's LSTMCell at each step


def lstm_hparams(model: str, values: Mapping[str, Any]) -> HParams:
    """Returns our hyperparameters for those of tensor2tensor, as stored in its `hparams.json`.

    Hyperparameters that only affect its training infrastructure are dropped.

    Args:
      model: "lstm_seq2seq" or "lstm_seq2seq_attention".
      values: values by tensor2tensor's names.

    Raises:
      HParamsError: a value requires a model that differs from ours, or is out of bounds; all are
        named.
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
      model: our model with the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: a variable is unknown to the model, a weight is missing, or a shape differs.
    """
    tables: dict[str, dict[int, Array]] = {}
    weights: dict[str, Array] = {}
    unknown = []
    for name, value in variables.items():
        if match := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name):
            for ours in _LSTM_TABLES.get(match[1], ()):
                tables.setdefault(ours, {})[int(match[2])] = value
            continue
        found = dict(_lstm_weights(name, value, variables))
        weights |= found
        if not found and not is_training_state(name):
            unknown.append(name)
    if unknown:
        raise CheckpointError(
            "not variables of an LSTM model that we know: " + ", ".join(unknown[:10])
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
    """Yields the weights of a variable with our names; nothing if it is unknown."""
    cell = re.search(
        r"/(encoder|decoder)/rnn/(attention_wrapper/)?multi_rnn_cell/cell_(\d+)/lstm_cell/(\w+)$",
        name,
    )
    if cell:
        ours, suffix = f"{cell[1]}.{cell[3]}", ""
        if not cell[2]:  # layers over a whole sequence, not single steps
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
