"""Layers of models that read pictures: standardization, convolutions, their initialization."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Image

# As torchvision and tensor2tensor (data_generators/imagenet.py) have them, times 255.
_IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
_IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)


def standardize(pixels: Tensor, kind: str) -> Tensor:
    """Returns scaled pixels, as `image_standardization` describes.

    `per_image` is TensorFlow's `per_image_standardization` of float32 pictures, `per_channel`
    tensor2tensor's `standardize_images`: a deviation is at least 1 / sqrt(number of values).

    Args:
      pixels: bytes, or floats from 0 to 255, [B, height, width, channels].
      kind: value of the hparam.
    """
    x = pixels if pixels.is_floating_point() else pixels.float()
    if kind == "none":
        return x
    if kind == "range":
        return x / 127.5 - 1.0
    if kind == "imagenet":
        if x.size(-1) != len(_IMAGENET_MEAN):
            raise HParamsError(
                "image_standardization=imagenet is of three channels, and these pictures have "
                f"{x.size(-1)}. Set image_standardization=per_image."
            )
        return (x - x.new_tensor(_IMAGENET_MEAN)) / x.new_tensor(_IMAGENET_STD)
    axes = (1, 2, 3) if kind == "per_image" else (1, 2)
    count = math.prod(x.size(axis) for axis in axes)
    mean = x.mean(axes, keepdim=True)
    deviation = (x - mean).square().mean(axes, keepdim=True).sqrt()
    return (x - mean) / deviation.clamp(min=count**-0.5)


def only_image(model: str, features: Features) -> Image:
    """Returns the picture that a model reads; HParamsError if there are several inputs."""
    image, *others = features.inputs.values()
    if others or not isinstance(image, Image):
        raise HParamsError(
            f"model {model!r} reads one picture; this problem has the inputs "
            f"{', '.join(features.inputs)}."
        )
    return image


def pad_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Pads a picture with zeros as TensorFlow's "SAME": more at the end if the sum is odd.

    Args:
      x: [B, channels, height, width].
      kernel: side of the window.
      stride: step of the window.
    """
    sides: list[int] = []
    for size in (x.size(3), x.size(2)):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        sides += [total // 2, total - total // 2]
    return F.pad(x, sides) if any(sides) else x


def batch_norm(channels: int, *, decay: float, epsilon: float) -> nn.BatchNorm2d:
    """Returns a batch norm of TensorFlow's `decay`, the part of the old average that is kept.

    In training its result depends on the batch: on no other example in evaluation and decoding.
    """
    return nn.BatchNorm2d(channels, eps=epsilon, momentum=1.0 - decay)


def scale_fan_in(module: nn.Module) -> None:
    """Initializes every convolution in `module` with variance 1 / fan-in, truncated normal.

    TensorFlow's `variance_scaling_initializer()`.
    """
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.Conv2d):
                deviation = child.weight[0].numel() ** -0.5 / 0.87962566103423978
                bound = 2 * deviation
                nn.init.trunc_normal_(child.weight, std=deviation, a=-bound, b=bound)
