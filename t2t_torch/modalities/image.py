"""Modalities of images: patches as a sequence, or scaled pixels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Image, PixelSequence
from t2t_torch.hparam import HParams
from t2t_torch.hparam_groups import ImageHParams
from t2t_torch.modalities.text import Embedding, Softmax, TextModality
from t2t_torch.modality import InputModality, Modality
from t2t_torch.text.encoder import NUM_RESERVED

_SIDES = (7, 8, 4, 5, 6)  # sizes of a patch in pixels, by preference, if they divide the image


class Patches(nn.Module):
    """Patch embedding of images, with learnt position embeddings.

    Dosovitskiy et al. 2021, arXiv:2010.11929.

    Args:
      feature: size of the image.
      hparams: hidden_size, patch_size, image_standardization.

    Raises:
      HParamsError: the patches do not divide the image.
    """

    def __init__(self, feature: Image, hparams: HParams) -> None:
        super().__init__()
        requested = getattr(hparams, "patch_size", 0)
        sides = (requested,) if requested else _SIDES
        fits = [s for s in sides if feature.height % s == 0 and feature.width % s == 0]
        if not fits:
            remedy = "Set another patch_size." if requested else "Resize it."
            raise HParamsError(
                f"a picture of {feature.height} x {feature.width} pixels cannot be cut into "
                f"squares of {', '.join(map(str, sorted(sides)))} pixels. {remedy}"
            )
        self.side = fits[0]
        self.kind = getattr(hparams, "image_standardization", "range")
        size = hparams.hidden_size
        self.projection = nn.Linear(self.side**2 * feature.channels, size)
        self.num_patches = feature.height * feature.width // self.side**2
        self.place = nn.Parameter(torch.randn(self.num_patches, size) * size**-0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """[B, height, width, channels] bytes or floats from 0 to 255 -> [B, P, H]."""
        scaled = standardize(pixels, self.kind).to(self.place.dtype)
        squares = scaled.unfold(1, self.side, self.side).unfold(2, self.side, self.side)
        flat = squares.flatten(1, 2).flatten(2)  # [B, P, channels * side * side]
        embedded: Tensor = self.projection(flat)
        return embedded + self.place


def reads_pixels(hparams: HParams) -> bool:
    """Returns whether a model of pictures reads pixels, not patches."""
    return isinstance(hparams, ImageHParams) and not hasattr(hparams, "patch_size")


class ImageModality(InputModality):
    """Modality of images, as a sequence of patches: [B, P, H].  Inputs only."""

    serves = Image

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns `PixelModality` for models that read pixels."""
        return PixelModality if reads_pixels(hparams) else cls

    @classmethod
    def bottom_of(cls, feature: Image, hparams: Any) -> nn.Module:
        """Returns the layer that embeds an image."""
        return Patches(feature, hparams)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each patch.  -> [B, P] bool."""
        patches = getattr(self.bottom, "num_patches", 1)
        return torch.ones(values.size(0), patches, dtype=torch.bool, device=values.device)


class Pixels(nn.Module):
    """Scaled pixels of a picture, without weights.

    Args:
      kind: value of `image_standardization`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, pixels: Tensor) -> Tensor:
        """[B, height, width, channels] bytes or floats -> the same shape, floats."""
        return standardize(pixels, self.kind)


class PixelModality(ImageModality):
    """Modality of images as scaled pixels, [B, height, width, channels].  Inputs only."""

    @classmethod
    def bottom_of(cls, feature: Image, hparams: Any) -> nn.Module:
        """Returns the layer that scales the pixels."""
        return Pixels(hparams.image_standardization)


_VALUES = 256


class PixelEmbedding(Embedding):
    """Embedding table of the values of pixels, with rows of its own for each channel.

    Args:
      channels: number of channels.
      hparams: as of `Embedding`.
    """

    def __init__(self, channels: int, hparams: HParams) -> None:
        super().__init__(NUM_RESERVED + _VALUES * channels, hparams)
        self.channels = channels

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """Returns the vectors of ids.  [..., T] -> [..., T, H].

        Args:
          ids: ids of consecutive values.
          first: place of the first one in the picture.
        """
        channel = torch.arange(first, first + ids.size(-1), device=ids.device) % self.channels
        return super().forward(torch.where(ids < NUM_RESERVED, ids, ids + channel * _VALUES))


class PixelSequenceModality(TextModality):
    """Modality of images that are generated value by value; targets only.

    tensor2tensor's `image_channel_embeddings_bottom`, and 256 logits with a bias.
    """

    serves = PixelSequence

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> TextModality:
        """Creates the modality of a target."""
        if not is_target:
            raise HParamsError("a PixelSequence can be a target, but no input.")
        table = nn.Parameter(torch.empty(NUM_RESERVED + _VALUES, hparams.hidden_size))
        nn.init.normal_(table, std=hparams.hidden_size**-0.5)
        return cls(PixelEmbedding(feature.channels, hparams), Softmax(table, bias=True))


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
