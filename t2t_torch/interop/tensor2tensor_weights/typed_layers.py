"""Hyperparameters and weights of tensor2tensor's transformer_moe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, transformer

_UNREAD = frozenset("attention_red_factor attention_red_nonlinearity attention_red_type".split())
"""Hyperparameters of types of layers that are refused."""
_NAMES = {
    r"/(encoder|decoder)/layer_(\d+)/(?:self_)?att_(?!ende_)\w+?/": (
        r"/\1/layer_\2/self_attention/"
    ),
    r"/decoder/layer_(\d+)/att_ende_\w+?/": r"/decoder/layer_\1/encdec_attention/",
    r"/layer_(\d+)/ff_\w+?/": r"/layer_\1/ffn/",
    r"/ffn/conv_hidden_relu/conv([12])_single/": r"/ffn/conv\1/",
    r"^transformer_moe/(encoder|decoder|target_space)": r"transformer_moe/body/\1",
}
_PARTS = {
    "depthwise_kernel": "depthwise.weight",
    "pointwise_kernel": "pointwise.weight",
    "bias": "pointwise.bias",
}


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    read = {name: value for name, value in values.items() if name not in _UNREAD}
    return transformer.convert_hparams(model, read, variables)


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    weights, plain = {}, {}
    separable = {name.rpartition("/")[0] for name in variables if name.endswith("depthwise_kernel")}
    for full, value in variables.items():
        name = full
        for pattern, ours in _NAMES.items():
            name = re.sub(pattern, ours, name)
        match = re.search(r"/(encoder|decoder)/layer_(\d+)/ffn/conv([12])/(\w+)$", name)
        if match and full.rpartition("/")[0] in separable:
            layer = f"{match[1]}.{match[2]}.feed_forward.{'inner' if match[3] == '1' else 'outer'}"
            if match[4] == "depthwise_kernel":  # [K, 1, E, 1] -> [E, 1, K]
                value = value[:, 0].transpose(1, 2, 0)
            elif match[4] == "pointwise_kernel":
                value = value[0, 0].T
            array = np.ascontiguousarray(value, np.float32)
            weights[f"{layer}.{_PARTS[match[4]]}"] = torch.from_numpy(array)
        else:
            plain[name] = value[0, 0] if value.ndim == 4 else value
    return weights | transformer.convert_weights(plain)
