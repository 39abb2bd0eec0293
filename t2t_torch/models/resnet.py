"""Residual networks for the classification of pictures.

He et al. 2016, arXiv:1512.03385 and arXiv:1603.05027; tensor2tensor, models/resnet.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Image, MultiLabel, Real, SoftLabel
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

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, height, width] -> the same shape."""
        x = self.norm(x)
        return F.relu(x) if self.relu else x


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
        self.norms = nn.ModuleList([Norm(inputs), Norm(filters)])
        self.shortcut = Projection(inputs, filters, stride) if project else None
        self.convolutions = nn.ModuleList(
            [Convolution(inputs, filters, 3, stride), Convolution(filters, filters, 3)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride]."""
        shortcut, x = x, self.norms[0](x)
        if self.shortcut is not None:
            shortcut = self.shortcut(x)
        x = self.convolutions[0](x)
        out: Tensor = self.convolutions[1](self.norms[1](x)) + shortcut
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
        outputs = ratio * filters
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

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, ratio * filters, height / stride, width / stride]."""
        shortcut = x if self.shortcut is None else self.shortcut(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(convolution(x))
        return F.relu(x + shortcut)


@register_model
class Resnet(T2TModel):
    """Residual network: groups of blocks, then the average of all places."""

    HParams = ResnetHParams
    hparams: ResnetHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image,)
    texts = (0, 0)

    def __init__(self, hparams: ResnetHParams, features: Features) -> None:
        _check(hparams)
        super().__init__(hparams, features)
        image = only_image(self.name, features)
        stride = hparams.initial_stride or (1 if hparams.is_cifar else 2)
        channels, *filters = hparams.filter_sizes
        kernel = hparams.initial_kernel_size
        self.first = Convolution(image.channels, channels, kernel, stride)
        self.first_norm = Norm(channels)
        self.groups = nn.ModuleList()
        ratios = hparams.bottleneck_ratios
        for group, blocks in enumerate(hparams.layer_sizes):
            made = nn.ModuleList()
            for block in range(blocks):
                project = block == 0
                step = 2 if group and project else 1
                if hparams.block_fn == "residual":
                    made.append(ResidualBlock(channels, filters[group], step, project=project))
                    channels = filters[group]
                else:
                    is_last = not project and block + 1 == blocks
                    made.append(
                        BottleneckBlock(
                            channels,
                            filters[group],
                            ratios[group],
                            step,
                            project=project,
                            is_last=is_last,
                        )
                    )
                    channels = ratios[group] * filters[group]
            self.groups.append(made)
        if hparams.final_norm:
            self.final_norm = Norm(channels)
        initialize(self, hparams)
        scale_fan_in(self)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the filters of the last group."""
        groups = len(hparams.layer_sizes)
        width = int(hparams.filter_sizes[groups])
        is_residual = hparams.block_fn == "residual"
        return width if is_residual else width * int(hparams.bottleneck_ratios[groups - 1])

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the average of all places, [B, C], for each target."""
        (name,) = self.features.inputs
        x = features[name].embedded.permute(0, 3, 1, 2)  # [B, channels, height, width]
        x = self.first_norm(self.first(x))
        if not self.hparams.is_cifar:  # values are not negative, so zeros never win
            x = F.max_pool2d(pad_same(x, 3, 2), 3, 2)
        for group in self.groups:
            for block in group:  # type: ignore[attr-defined]
                x = block(x)
        if self.hparams.final_norm:
            x = self.final_norm(x)
        hidden = Hidden(x.mean((2, 3)))
        return dict.fromkeys(self.features.targets, hidden)


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
