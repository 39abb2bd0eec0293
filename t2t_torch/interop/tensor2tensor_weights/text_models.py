"""Hyperparameters and weights of tensor2tensor's LSTM models and of its text_cnn.

tensor2tensor's attention includes the padding of a batch, ours does not: they are equal for inputs
without padding.  The windows of its text_cnn may contain padding at the end of a text, if another
text of the batch is longer; ours are full of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    MODALITIES,
    Array,
    checked_hparams,
    collect,
    renamed,
)
from t2t_torch.interop.tensor2tensor_weights.transformer import TABLES

_LSTM_MUST_BE = {
    **MODALITIES,
    **dict.fromkeys(("area_key_mode", "area_value_mode"), ("none",)),
    **dict.fromkeys(("max_area_height", "max_area_width", "memory_height"), (1,)),
    "num_area_layers": (0,),
}
_TABLES = {**TABLES, "shared": (*TABLES["shared"], *TABLES["softmax"])}
_TABLES_OF_CNN = dict.fromkeys(("input_emb", "shared"), TABLES["input_emb"])
_FORGET_BIAS = 1.0  # added by TensorFlow's LSTMCell at each step
_NAMES = {
    r"/memory_layer/kernel": "attention.memory_layer.weight",
    r"/query_layer/kernel": "attention.query_layer.weight",
    r"/attention_layer/kernel": "attention.layers.0.weight",
    r"/attention_layer_(\d+)/kernel": r"attention.layers.\1.weight",
    r"class_label_modality_\d+_\d+/dense/(kernel|bias)": r"modalities.targets.top.\1",
    r"/decoder/dense/(kernel|bias)": r"join_heads.\1",
}
"""Our names of linear maps, which tensor2tensor stores as [in, out]."""


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    if model != "text_cnn":
        return checked_hparams(model, values, _LSTM_MUST_BE)
    values = dict(values)
    kernels = values.pop("filter_sizes", (2, 3, 4, 5))
    rate = values.pop("output_dropout", 0.4)
    hparams = checked_hparams(model, values, MODALITIES)
    return hparams.replace(
        kernel_sizes=tuple(kernels),
        embedding_size=hparams.hidden_size,
        layer_prepostprocess_dropout=rate,
        max_norm=0.0,
        pad_windows=False,
    )


def convert_weights(model: str, variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables of a model as weights by our names."""
    names = _TABLES_OF_CNN if model == "text_cnn" else _TABLES

    def weights_of(name: str, value: Array) -> Iterator[tuple[str, Array]]:
        table = re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)$", name)
        if table is None:
            return _weights(name, value, variables)
        return ((f"{ours}#{table[2]}", value) for ours in names.get(table[1], ()))

    what = "text_cnn" if model == "text_cnn" else "an LSTM model"
    return collect(variables, weights_of, what)


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
    elif match := re.fullmatch(r"(.*/bahdanau_attention)(?:_\d+)?/attention_v", name):
        heads = [n for n in variables if n.startswith(match[1]) and n.endswith("/attention_v")]
        heads.sort(key=lambda one: (len(one), one))  # attention, attention_1 ... attention_10
        yield "attention.match.weight", np.stack([variables[head] for head in heads])
    elif match := re.search(r"/conv-maxpool-(\d+)/(W|b)$", name):
        # Names depend on how often the graph was built: the sizes of filters at their ends count.
        ends = (re.search(r"/conv-maxpool-(\d+)/W$", other) for other in variables)
        order = sorted({int(end[1]) for end in ends if end})
        ours = f"convolution.convolutions.{order.index(int(match[1]))}"
        if match[2] == "W":  # [K, E, 1, F] -> [F, E, K]
            yield f"{ours}.weight", value[:, :, 0].transpose(2, 1, 0)
        else:
            yield f"{ours}.bias", value
    elif linear := renamed(name, _NAMES):
        yield linear, value.T


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
