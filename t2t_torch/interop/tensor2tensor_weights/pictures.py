"""Hyperparameters and weights of tensor2tensor's models of pictures.

tensor2tensor standardizes pictures in the problem, this library in the model: the hparam
`image_standardization` is set to what its problems do, `imagenet` where the network is for pictures
of ImageNet's size, else `per_image`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    MODALITIES,
    Array,
    as_ours,
    checked_hparams,
    collect,
    renamed,
)
from t2t_torch.text.encoder import NUM_RESERVED

_OF_RESNET: dict[str, tuple[Any, ...]] = {
    "keep_prob": (None, 0.5, 1.0),  # of targeted dropout
    "targeting_rate": (None, 0.0, 0.5),
    "use_nchw": (True, False),  # the order of axes in memory
    "use_td": (False, ""),
}
_OF_IMAGETRANSFORMER: dict[str, tuple[Any, ...]] = {
    "attention_key_channels": (0,),
    "attention_value_channels": (0,),
    "block_raster_scan": (False,),
    "bottom": ({"targets": "image_channel_embeddings_bottom"},),
    "dec_attention_type": ("local_1d",),
    "ffn_layer": ("conv_hidden_relu",),
    "kv_filter_width": (1,),
    "likelihood": ("cat",),
    "local_and_global_att": (False,),
    "norm_type": ("layer",),
    "q_filter_width": (1,),
    "shared_rel": (False,),
    "top": ({"targets": "identity_top"},),
}
_UNREAD = """
    block_size block_width gap_sizes img_len memory_flange num_channels num_encoder_layers
    num_mixtures num_output_layers query_shape
""".split()
"""Hyperparameters of imagetransformer that `local_1d` does not read, or that the problem has."""
_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`."""
    made = dict(values)
    expected = {**MODALITIES, **(_OF_RESNET if model == "resnet" else {})}
    if model == "basic_fc_relu":
        made["layer_prepostprocess_dropout"] = made.pop("dropout", 0.0)
    if model == "imagetransformer":
        expected |= _OF_IMAGETRANSFORMER
        made = {name: value for name, value in made.items() if name not in _UNREAD}
    if model == "shake_shake":
        made["shake_shake_concat"] = bool(made.get("shake_shake_concat"))
    hparams = checked_hparams(model, made, expected)
    if model != "resnet":
        return hparams
    if made.get("is_cifar"):  # its loss has no label smoothing
        return hparams.replace(label_smoothing=0.0)
    return hparams.replace(image_standardization="imagenet")


def convert_weights(model: str, variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables of a model of pictures as weights by our names."""
    if model == "imagetransformer":
        return collect(variables, _imagetransformer, model)
    names = _PLACES.get(model, lambda variables: ())
    places = {name: renamed(name, _NAMES) for name in variables} | dict(names(variables))

    def weights_of(name: str, value: Array) -> Iterator[tuple[str, Array]]:
        if ours := places[name]:
            yield ours, as_ours(name, value)

    weights = collect(variables, weights_of, "a model of pictures")
    norms = [name.removesuffix("running_mean") for name in weights if "running_mean" in name]
    counts = {f"{norm}num_batches_tracked": torch.zeros((), dtype=torch.int64) for norm in norms}
    return weights | counts


_NAMES = {
    r"(?:class_label_modality_\d+_\d+/dense|body/logits)/(kernel|bias)": (
        r"modalities.targets.top.\1"
    ),
    r"body/layer_(\d+)/(kernel|bias)": r"layers.\1.\2",
}


_PARTS = {
    "init_conv": "init_conv",
    "init_bn": "init_bn",
    "path1_conv": "skip.path1",
    "path2_conv": "skip.path2",
    "final_path_bn": "skip.norm",
    "concat_1x1": "join",
    "concat_bn": "join_norm",
}


def _shake_shake(variables: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yields the name of each variable of `shake_shake`, and ours."""
    blocks = {
        (int(match[1]), int(match[2]))
        for name in variables
        if (match := re.search(r"body/L(\d)/layer_(\d+)/", name))
    }
    number = {block: i for i, block in enumerate(sorted(blocks))}
    pattern = re.compile(
        r"body/(?:L(\d)/layer_(\d+)/)?(?:branch_(\d+)/)?(\w+)/(kernel|bias|gamma|beta|moving_\w+)$"
    )
    for name in variables:
        match = pattern.search(name)
        if match is None:
            continue
        group, layer, branch, part, kind = match.groups()
        place = f"blocks.{number[int(group), int(layer)]}." if group else ""
        inside = f"branches.{branch}.{part}" if branch else _PARTS.get(part)
        is_norm = part.startswith("bn") or part.endswith("bn")
        ours = _NORM.get(kind, kind) if is_norm else kind.replace("kernel", "weight")
        if inside:
            yield name, f"{place}{inside}.{ours}"


def _resnet(variables: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yields the name of each variable of `resnet`, and ours.

    Layers are numbered in the order in which they were made, so the sides of the kernels tell the
    blocks: 3, 3 is a residual block, 1, 3, 1 a bottleneck, and another 1 before them the shortcut
    of the first block of a group.
    """
    pattern = re.compile(r"body/(conv2d|batch_normalization)(?:_(\d+))?/(\w+)$")
    found = {name: match for name in variables if (match := pattern.search(name))}
    sides = {
        int(match[2] or 0): variables[name].shape[0]
        for name, match in found.items()
        if match[1] == "conv2d"
    }
    convolutions, norms = _layers([side for _, side in sorted(sides.items())])
    for name, match in found.items():
        layers = convolutions if match[1] == "conv2d" else norms
        if (place := int(match[2] or 0)) < len(layers):
            yield name, f"{layers[place]}.{_NORM.get(match[3], 'weight')}"


def _layers(sides: Sequence[int]) -> tuple[list[str], list[str]]:
    """Returns our names of the convolutions and norms, in their order.

    Args:
      sides: sides of the kernels.
    """
    convolutions, norms = ["first"], ["first_norm.norm"]
    group, block, place = -1, 0, 1
    while place < len(sides):
        is_bottleneck = list(sides[place : place + 4]) == [1, 1, 3, 1]
        projects = is_bottleneck or list(sides[place : place + 3]) == [1, 3, 3]
        group, block = (group + 1, 0) if projects else (group, block + 1)
        is_bottleneck |= list(sides[place : place + 3]) == [1, 3, 1]
        here = f"groups.{group}.{block}"
        own = [f"{here}.norms.{i}.norm" for i in range(3 if is_bottleneck else 2)]
        if not is_bottleneck:  # its first norm is made before the shortcut
            norms.append(own.pop(0))
        if projects:
            convolutions.append(f"{here}.shortcut.0")
            norms.append(f"{here}.shortcut.1.norm")
        count = 3 if is_bottleneck else 2
        convolutions += [f"{here}.convolutions.{i}" for i in range(count)]
        norms += own
        place += count + projects
    return convolutions, norms


_PLACES: Mapping[str, Callable[[Mapping[str, Array]], Iterator[tuple[str, str]]]] = {
    "resnet": _resnet,
    "shake_shake": _shake_shake,
}
"""Functions that yield the names of variables, and ours, of models whose names have an order."""

_IMAGETRANSFORMER_NAMES = {
    rf"body/decoder_layer_(\d+)/{theirs}": rf"decoder.\1.{ours}"
    for theirs, ours in {
        r"layer_postprocess/layer_norm/layer_norm_(scale|bias)": r"attention_after.norm.\2",
        r"layer_postprocess_1/layer_norm/layer_norm_(scale|bias)": r"feed_forward_after.norm.\2",
        "local_1d_self_att/self_attention/output_transform/kernel": "attention.output.weight",
        r"ffn/conv1/(kernel|bias)": r"feed_forward.inner.\2",
        r"ffn/conv2/(kernel|bias)": r"feed_forward.outer.\2",
    }.items()
}
_ROWS = {
    r"body/output_conv/(kernel|bias)": r"modalities.targets.top.\1",
    "rgb_target_emb_input_bottom": "modalities.targets.bottom.weight",
    r"embedding/kernel": "modalities.inputs.bottom.weight",
}
"""Our names of what has a row for each value of a pixel or each label."""


def _imagetransformer(name: str, value: Array) -> Iterator[tuple[str, Array]]:
    """Yields our name and the weight of a variable of imagetransformer.

    Tables of labels and values of pixels have two rows more here, those of padding and end.
    """
    part = re.search(r"body/decoder_layer_(\d+)/.*self_attention/([qkv])/kernel$", name)
    if part:
        number = "qkv".index(part[2])
        yield f"decoder.{part[1]}.attention.query_key_value.weight#{number}", value.T
    elif of_rows := renamed(name, _ROWS):
        rows = value.T if name.endswith("output_conv/kernel") else value
        above = np.zeros((NUM_RESERVED, *rows.shape[1:]), np.float32)
        yield of_rows, np.concatenate([above, rows])
    elif inside := renamed(name, _IMAGETRANSFORMER_NAMES):
        yield inside, value.T
