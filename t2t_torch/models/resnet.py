"""Residual networks for the classification of pictures, and of sounds as spectrograms.

He et al. 2016, arXiv:1512.03385 and arXiv:1603.05027; tensor2tensor, models/resnet.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Audio, ClassLabel, Features, Image, MultiLabel, Real, SoftLabel
from t2t_torch.hparams.resnet import ResnetHParams
from t2t_torch.layers.convolution import batch_norm, only_image, pad_same, scale_fan_in
from t2t_torch.layers.initialization import initialize
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_DECAY, _EPSILON = 0.9, 1e-5  # of batch norm; tensor2tensor, models/resnet.py


class Convolution(nn.Conv2d):
    """Convolution without bias that keeps the size, or divides it by the stride.

    Args:
      inputs: channels of the input.
      filters: channels of the output.
      kernel: side of the window, odd.
      stride: step of the window.
    """

    def __init__(self, inputs: int, filters: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, filters, kernel, stride, padding=(kernel - 1) // 2, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride]."""
        if self.kernel_size == (1, 1):
            # Equal to a stride of the convolution, for which the backward pass of torch 2.13 on a
            # CPU crashes with channels last and 4 input and 8 output channels.
            down, right = self.stride
            return F.conv2d(input[:, :, ::down, ::right], self.weight)
        return super().forward(input)


class Norm(nn.Module):
    """Batch norm, and ReLU if `relu`.

    Args:
      channels: number of channels.
      relu: True to apply ReLU afterwards.
      zero: True to initialize the scale with 0.
    """

    def __init__(self, channels: int, *, relu: bool = True, zero: bool = False) -> None:
        super().__init__()
        self.norm = batch_norm(channels, decay=_DECAY, epsilon=_EPSILON)
        self.relu = relu
        if zero:
            nn.init.zeros_(self.norm.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, C, height, width] -> the same shape, 0 where `mask`, [B, 1, height, 1], is 0."""
        x = self.norm(x)
        x = F.relu(x) if self.relu else x
        return x if mask is None else x * mask


class Projection(nn.Sequential):
    """Shortcut of the first block of a group: a convolution of 1 x 1 and a norm."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__(Convolution(inputs, filters, 1, stride), Norm(filters, relu=False))


class ResidualBlock(nn.Module):
    """Two convolutions of 3 x 3, each after a norm.

    Args:
      inputs: channels of the input.
      filters: filters of both convolutions.
      stride: stride of the first convolution.
      project: True for the first block of a group.
    """

    def __init__(self, inputs: int, filters: int, stride: int, *, project: bool) -> None:
        super().__init__()
        self.stride = stride
        self.norms = nn.ModuleList([Norm(inputs), Norm(filters)])
        self.shortcut = Projection(inputs, filters, stride) if project else None
        self.convolutions = nn.ModuleList(
            [Convolution(inputs, filters, 3, stride), Convolution(filters, filters, 3)]
        )

    def forward(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride].

        Args:
          x: the input.
          before: mask of the rows of `x`, [B, 1, height, 1]; None: all are valid.
          after: mask of the rows of the output.
        """
        shortcut, x = x, self.norms[0](x, before)
        if self.shortcut is not None:
            shortcut = self.shortcut(x)
        x = self.convolutions[0](x)
        out: Tensor = self.convolutions[1](self.norms[1](x, after)) + shortcut
        return out


class BottleneckBlock(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, each before a norm.

    Args:
      inputs: channels of the input.
      filters: filters of the first two convolutions.
      ratio: filters of the last one / `filters`.
      stride: stride of the second convolution.
      project: True for the first block of a group.
      is_last: True for the last block of a group that has several: its last scale starts at 0.
    """

    def __init__(
        self, inputs: int, filters: int, ratio: int, stride: int, *, project: bool, is_last: bool
    ) -> None:
        super().__init__()
        self.stride, outputs = stride, ratio * filters
        self.shortcut = Projection(inputs, outputs, stride) if project else None
        self.convolutions = nn.ModuleList(
            [
                Convolution(inputs, filters, 1),
                Convolution(filters, filters, 3, stride),
                Convolution(filters, outputs, 1),
            ]
        )
        self.norms = nn.ModuleList(
            [Norm(filters), Norm(filters), Norm(outputs, relu=False, zero=is_last)]
        )

    def forward(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        """[B, inputs, height, width] -> [B, ratio * filters, height / stride, width / stride].

        Args:
          x: the input.
          before: mask of the rows of `x`, [B, 1, height, 1]; None: all are valid.
          after: mask of the rows of the output.
        """
        shortcut = x if self.shortcut is None else self.shortcut(x)
        masks = before, after, after
        for convolution, norm, mask in zip(self.convolutions, self.norms, masks, strict=True):
            x = norm(convolution(x), mask)
        return F.relu(x + shortcut)


class PooledBlock(nn.Module):
    """Two convolutions of 3 x 3 before norms, max pooling after the first; the second adds to it.

    A block of small fast networks: github.com/davidcpage/cifar10-fast; Jordan 2024, "94% on
    CIFAR-10 in 3.29 Seconds on a Single GPU", arXiv:2404.00498.

    Args:
      inputs: channels of the input.
      filters: filters of both convolutions.
      stride: 2 to halve the sides by pooling, or 1.
    """

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.norms = nn.ModuleList([Norm(filters), Norm(filters)])
        self.convolutions = nn.ModuleList(
            [Convolution(inputs, filters, 3), Convolution(filters, filters, 3)]
        )

    def forward(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride].

        The masks are those of `ResidualBlock`.
        """
        x = self.convolutions[0](x)
        if self.stride > 1:
            if before is not None and after is not None:
                x = x.masked_fill(before == 0, torch.finfo(x.dtype).min)
                x = F.max_pool2d(x, self.stride, ceil_mode=True) * after
            else:
                x = F.max_pool2d(x, self.stride, ceil_mode=True)
        x = self.norms[0](x, after)
        out: Tensor = x + self.norms[1](self.convolutions[1](x), after)
        return out


@register_model
class Resnet(T2TModel):
    """Residual network: groups of blocks, then the average of all places."""

    HParams = ResnetHParams
    hparams: ResnetHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image, Audio)
    texts = (0, 0)

    def __init__(self, hparams: ResnetHParams, features: Features) -> None:
        _check(hparams)
        super().__init__(hparams, features)
        if [type(one) for one in features.inputs.values()] == [Audio]:
            planes = 3 if hparams.audio_add_delta_deltas else 1
        else:
            planes = only_image(self.name, features).channels
        stride = hparams.initial_stride or (1 if hparams.is_cifar else 2)
        channels, *filters = hparams.filter_sizes
        self.first = Convolution(planes, channels, hparams.initial_kernel_size, stride)
        self.first_norm = Norm(channels)
        self.groups = nn.ModuleList()
        for group, blocks in enumerate(hparams.layer_sizes):
            made = nn.ModuleList()
            for block in range(blocks):
                project, width = block == 0, filters[group]
                step = 2 if project and (group or hparams.block_fn == "pooled") else 1
                if hparams.block_fn == "pooled":
                    made.append(PooledBlock(channels, width, step))
                elif hparams.block_fn == "residual":
                    made.append(ResidualBlock(channels, width, step, project=project))
                else:
                    kind = {"project": project, "is_last": not project and block + 1 == blocks}
                    ratio = hparams.bottleneck_ratios[group]
                    made.append(BottleneckBlock(channels, width, ratio, step, **kind))
                    width *= ratio
                channels = width
            self.groups.append(made)
        if hparams.final_norm:
            self.final_norm = Norm(channels)
        initialize(self, hparams)
        scale_fan_in(self)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the filters of the last group."""
        groups = len(hparams.layer_sizes)
        has_ratio = hparams.block_fn == "bottleneck"
        ratio = int(hparams.bottleneck_ratios[groups - 1]) if has_ratio else 1
        return ratio * int(hparams.filter_sizes[groups])

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the average of all places, and of both views, [B, C], for each target.

        `top` is linear, so that its logits are the mean of those of the views.
        """
        (name,) = self.features.inputs
        x = features[name].embedded.permute(0, 3, 1, 2)  # [B, channels, height, width]
        mask: Tensor | None = None  # of the frames of sounds: results do not depend on padding
        if isinstance(self.features.inputs[name], Audio):
            mask = features[name].mask[:, None, :, None].to(x.dtype)
        mirrors = self.hparams.average_mirrored and "flip" in self.hparams.image_augmentation
        views = 2 if mirrors and not self.training and mask is None else 1
        if views == 2:
            x = torch.cat([x, x.flip(3)])
        x = self.first(x)
        mask = _strided(mask, self.first.stride[0])
        x = self.first_norm(x, mask)
        if not self.hparams.is_cifar:  # values are not negative, so zeros never win
            # "SAME" would move the windows of a sound by the length of the batch.
            padded = pad_same(x, 3, 2) if mask is None else F.pad(x, (1, 1, 1, 1))
            x, mask = F.max_pool2d(padded, 3, 2), _strided(mask, 2)
        for group in self.groups:
            for block in group:  # type: ignore[attr-defined]
                before, mask = mask, _strided(mask, block.stride)
                x = block(x, before, mask)
        if self.hparams.final_norm:
            x = self.final_norm(x)
        if mask is None:
            hidden = Hidden(x.mean((2, 3)).view(views, -1, x.size(1)).mean(0))
        else:
            hidden = Hidden((x * mask).sum((2, 3)) / (mask.sum((2, 3)).clamp(min=1) * x.size(3)))
        return dict.fromkeys(self.features.targets, hidden)


def _strided(mask: Tensor | None, stride: int) -> Tensor | None:
    """Returns the mask of the rows after a stride.  [B, 1, height, 1]."""
    return mask if mask is None else mask[:, :, ::stride]


def _check(hparams: ResnetHParams) -> None:
    groups = len(hparams.layer_sizes)
    if not groups or min((*hparams.layer_sizes, *hparams.filter_sizes)) < 1:
        raise HParamsError(
            f"layer_sizes={hparams.layer_sizes}, filter_sizes={hparams.filter_sizes}: expected "
            "numbers from 1 on, one of each group of blocks."
        )
    needed = {"filter_sizes": groups + 1}
    if hparams.block_fn == "bottleneck":
        needed["bottleneck_ratios"] = groups
    for name, count in needed.items():
        if len(getattr(hparams, name)) < count:
            raise HParamsError(
                f"{name}={getattr(hparams, name)}: layer_sizes has {groups} groups, which need "
                f"{count} numbers."
            )
