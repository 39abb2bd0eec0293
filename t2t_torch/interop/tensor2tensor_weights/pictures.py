"""Hyperparameters and weights of tensor2tensor's models of pictures.

tensor2tensor standardizes pictures in the problem, this library in the model: the hparam
`image_standardization` is set to what its problems do, `imagenet` where the network is for pictures
of ImageNet's size, else `per_image`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    MODALITIES,
    Array,
    checked_hparams,
    is_training_state,
    refuse_unknown,
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
    if "optimizer" in made:  # these sets write "Momentum"
        made["optimizer"] = re.sub("(?<=[a-z])(?=[A-Z])", "_", made["optimizer"]).lower()
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


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables of a model of pictures as weights by our names."""
    used = {name: value for name, value in variables.items() if not is_training_state(name)}
    model = next(iter(used), "").partition("/")[0]
    if model == "imagetransformer":
        return _imagetransformer(used)
    convert = {"resnet": _resnet, "shake_shake": _shake_shake}.get(model, _basic)
    weights: dict[str, Array] = {}
    unknown = []
    places = dict(convert(used))
    for name, value in used.items():
        ours = places.get(name) or _top(name)
        if ours is None:
            unknown.append(name)
            continue
        weights[ours] = value
        if ours.endswith(".running_mean"):
            count = ours.removesuffix("running_mean") + "num_batches_tracked"
            weights[count] = np.zeros((), np.int64)
    refuse_unknown(unknown, "a model of pictures")
    return {name: torch.from_numpy(_as_ours(value)) for name, value in weights.items()}


def _as_ours(value: Array) -> Any:
    """Returns a kernel in torch's order: [out, in] of a linear map, [out, in, h, w]."""
    if value.ndim == 4:
        value = value.transpose(3, 2, 0, 1)
    elif value.ndim == 2:
        value = value.T
    return np.array(value, order="C")


def _top(name: str) -> str | None:
    """Returns our name of a variable of the classifier; None if it is none."""
    match = re.search(r"(class_label_modality_\d+_\d+/dense|body/logits)/(kernel|bias)$", name)
    return match and f"modalities.targets.top.{'weight' if match[2] == 'kernel' else 'bias'}"


def _basic(variables: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yields the name of each variable of `basic_fc_relu`, and ours."""
    for name in variables:
        if match := re.search(r"body/layer_(\d+)/(kernel|bias)$", name):
            yield name, f"layers.{match[1]}.{'weight' if match[2] == 'kernel' else 'bias'}"


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
        place = int(match[2] or 0)
        if place < len(layers):
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


_OF_LAYER = {
    "layer_postprocess/layer_norm/layer_norm_scale": "attention_after.norm.weight",
    "layer_postprocess/layer_norm/layer_norm_bias": "attention_after.norm.bias",
    "layer_postprocess_1/layer_norm/layer_norm_scale": "feed_forward_after.norm.weight",
    "layer_postprocess_1/layer_norm/layer_norm_bias": "feed_forward_after.norm.bias",
    "local_1d_self_att/self_attention/output_transform/kernel": "attention.output.weight",
    "ffn/conv1/kernel": "feed_forward.inner.weight",
    "ffn/conv1/bias": "feed_forward.inner.bias",
    "ffn/conv2/kernel": "feed_forward.outer.weight",
    "ffn/conv2/bias": "feed_forward.outer.bias",
}
_OUTSIDE = {
    "kernel": "modalities.inputs.bottom.weight",
    "rgb_target_emb_input_bottom": "modalities.targets.bottom.weight",
    "body/output_conv/kernel": "modalities.targets.top.weight",
    "body/output_conv/bias": "modalities.targets.top.bias",
}


def _imagetransformer(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns the variables of imagetransformer as weights by our names.

    Tables of labels and values of pixels have two rows more here, those of padding and end.
    """
    weights: dict[str, Array] = {}
    unknown = []
    for name in variables:
        inside = re.search(r"body/decoder_layer_(\d+)/(.+)$", name)
        end = re.search(r"(body/output_conv/\w+|rgb_target_emb_\w+|(?<=embedding/)kernel)$", name)
        value = variables[name]
        if inside and (ours := _OF_LAYER.get(inside[2])):
            weights[f"decoder.{inside[1]}.{ours}"] = value.T if value.ndim == 2 else value
        elif inside and inside[2].endswith("self_attention/q/kernel"):
            parts = [variables[re.sub("q/kernel$", f"{part}/kernel", name)] for part in "qkv"]
            joined = np.concatenate([part.T for part in parts])
            weights[f"decoder.{inside[1]}.attention.query_key_value.weight"] = joined
        elif end and end[1] in _OUTSIDE:
            rows = value.T if name.endswith("output_conv/kernel") else value
            above = np.zeros((NUM_RESERVED, *rows.shape[1:]), np.float32)
            weights[_OUTSIDE[end[1]]] = np.concatenate([above, rows])
        elif not (inside and re.search("self_attention/[kv]/kernel$", inside[2])):
            unknown.append(name)
    refuse_unknown(unknown, "imagetransformer")
    return {name: torch.from_numpy(np.array(value, order="C")) for name, value in weights.items()}
