"""Hyperparameters and weights of tensor2tensor's text_cnn.

Its windows may contain padding at the end of a text, if another text of the batch is longer; ours
are full of words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
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


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names.

    Names of filters depend on how often the graph was built: their ends count.
    """
    filters = {
        int(match[1]) for name in variables if (match := re.search(r"/conv-maxpool-(\d+)/W$", name))
    }
    order = {kernel: number for number, kernel in enumerate(sorted(filters))}
    weights: dict[str, Array] = {}
    table: dict[int, Array] = {}
    unknown = []
    for name, value in variables.items():
        if match := re.search(r"/conv-maxpool-(\d+)/(W|b)$", name):
            ours = f"convolution.convolutions.{order[int(match[1])]}"
            if match[2] == "W":  # [K, E, 1, F] -> [F, E, K]
                weights[f"{ours}.weight"] = value[:, :, 0].transpose(2, 1, 0)
            else:
                weights[f"{ours}.bias"] = value
        elif match := re.search(
            r"symbol_modality_\d+_\d+/(?:input_emb|shared)/weights_(\d+)$", name
        ):
            table[int(match[1])] = value
        elif match := re.search(r"class_label_modality_\d+_\d+/dense/(kernel|bias)$", name):
            kind = "weight" if match[1] == "kernel" else "bias"
            weights[f"modalities.targets.top.{kind}"] = value.T
        else:
            unknown.append(name)
    refuse_unknown(unknown, "text_cnn")
    if table:
        whole = np.concatenate([table[number] for number in sorted(table)])
        weights["modalities.inputs.bottom.weight"] = whole
    return {
        name: torch.from_numpy(np.ascontiguousarray(value, np.float32))
        for name, value in weights.items()
    }
