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

from t2t_torch.errors import CheckpointError
from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, checked_hparams, is_training_state

# The values for which tensor2tensor's models equal ours.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "bottom": ({},),
    "loss": ({},),
    "name": ({},),
    "top": ({},),
    "weights_fn": ({},),
}
_OF_RESNET: dict[str, tuple[Any, ...]] = {
    "keep_prob": (None, 0.5, 1.0),  # of targeted dropout
    "targeting_rate": (None, 0.0, 0.5),
    "use_nchw": (True, False),  # the order of axes in memory
    "use_td": (False, ""),
}
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
    expected = _MUST_BE | (_OF_RESNET if model == "resnet" else {})
    if model == "basic_fc_relu":
        made["layer_prepostprocess_dropout"] = made.pop("dropout", 0.0)
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
    if unknown:
        raise CheckpointError(
            "not variables of a model of pictures that we know: " + ", ".join(unknown[:10])
        )
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
