"""Shake-Shake regularization of residual networks with several branches.

Gastaldi 2017, arXiv:1705.07485, "Shake-Shake-Batch"; ShakeDrop: Yamada et al. 2018,
arXiv:1802.02375.  tensor2tensor, models/shake_shake.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Image, MultiLabel, Real, SoftLabel
from t2t_torch.hparams.shake_shake import ShakeShakeHParams
from t2t_torch.layers.convolution import batch_norm, only_image, pad_same
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_DECAY, _EPSILON = 0.99, 1e-3  # of TensorFlow's batch norm


def _norm(channels: int) -> nn.BatchNorm2d:
    return batch_norm(channels, decay=_DECAY, epsilon=_EPSILON)


class Branch(nn.Module):
    """ReLU, a convolution of 3 x 3 and a norm, twice.

    Args:
      inputs: channels of the input.
      filters: channels of the output.
      stride: stride of the first convolution.
    """

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride)
        self.bn1 = _norm(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1)
        self.bn2 = _norm(filters)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride]."""
        x = self.bn1(self.conv1(pad_same(F.relu(x), 3, self.stride)))
        out: Tensor = self.bn2(self.conv2(F.relu(x)))
        return out


class Skip(nn.Module):
    """Residual connection to another number of channels: two shifted halves, a norm.

    Args:
      inputs: channels of the input.
      filters: channels of the output.
      stride: step between the pixels that are read.
    """

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.path1 = nn.Conv2d(inputs, filters // 2, 1)
        self.path2 = nn.Conv2d(inputs, filters // 2, 1)
        self.norm = _norm(filters)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride]."""
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        step = self.stride
        paths = [self.path1(x[:, :, ::step, ::step]), self.path2(shifted[:, :, ::step, ::step])]
        out: Tensor = self.norm(torch.cat(paths, 1))
        return out


def _shaken(x: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Returns x * forward, with the gradient of x * backward."""
    return x * backward + (x * (forward - backward)).detach()


class Block(nn.Module):
    """Branches with random weights that add up to 1, and the residual connection.

    Each example has weights of its own, others in the backward pass.  In evaluation all branches
    have the same weight.

    Args:
      inputs: channels of the input.
      filters: channels of the output.
      stride: stride of the branches.
      hparams: shake_shake_*, layer_prepostprocess_dropout.
      keep: probability that the branches are kept (ShakeDrop).
    """

    def __init__(
        self, inputs: int, filters: int, stride: int, hparams: ShakeShakeHParams, keep: float
    ) -> None:
        super().__init__()
        count = hparams.shake_shake_num_branches
        self.keep = keep
        self.branches = nn.ModuleList(Branch(inputs, filters, stride) for _ in range(count))
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.skip = Skip(inputs, filters, stride) if inputs != filters else None
        if hparams.shake_shake_concat:
            self.join: nn.Module | None = nn.Conv2d((count + 1) * filters, filters, 1)
            self.join_norm = _norm(filters)
        else:
            self.join = None

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, filters, height / stride, width / stride]."""
        made = self._weighted([branch(x) for branch in self.branches])
        made = [self._dropped(self.dropout(one)) for one in made]
        residual = x if self.skip is None else self.skip(x)
        if self.join is None:
            return residual + torch.stack(made).sum(0)
        joined: Tensor = self.join_norm(self.join(F.relu(torch.cat([residual, *made], 1))))
        return joined

    def _weighted(self, made: list[Tensor]) -> list[Tensor]:
        count = len(made)
        if not self.training:
            return [one / count for one in made]
        drawn = torch.rand(2, count, len(made[0]), 1, 1, 1, device=made[0].device)
        forward, backward = drawn / drawn.sum(1, keepdim=True)
        return [_shaken(*parts) for parts in zip(made, forward, backward, strict=True)]

    def _dropped(self, x: Tensor) -> Tensor:
        """Returns the branches as ShakeDrop scales them."""
        if self.keep == 1.0:
            return x
        if not self.training:
            return x * self.keep
        kept, alpha, beta = torch.rand(3, len(x), 1, 1, 1, device=x.device)
        is_kept = kept < self.keep
        one = torch.ones_like(alpha)
        forward = torch.where(is_kept, one, 2.0 * alpha - 1.0)
        return _shaken(x, forward, torch.where(is_kept, one, beta))


@register_model
class ShakeShake(T2TModel):
    """Three groups of Shake-Shake blocks, then the average of all places."""

    HParams = ShakeShakeHParams
    hparams: ShakeShakeHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image,)
    texts = (0, 0)

    def __init__(self, hparams: ShakeShakeHParams, features: Features) -> None:
        if (hparams.num_hidden_layers - 2) % 6 or hparams.hidden_size % 16:
            raise HParamsError(
                f"num_hidden_layers={hparams.num_hidden_layers}, hidden_size="
                f"{hparams.hidden_size}: shake_shake needs 6 n + 2 layers, such as 26, and a "
                "multiple of 16, such as 32."
            )
        super().__init__(hparams, features)
        channels = only_image(self.name, features).channels
        self.init_conv = nn.Conv2d(channels, 16, 3, padding=1)
        self.init_bn = _norm(16)
        count = (hparams.num_hidden_layers - 2) // 6
        blocks: list[nn.Module] = []
        channels = 16
        for group in range(3):
            filters = hparams.hidden_size * 2**group
            for number in range(count):
                stride = 2 if group and not number else 1
                done = (len(blocks) + 1) / (3 * count)
                keep = 1.0 - done * (1.0 - hparams.shake_drop_prob)
                blocks.append(Block(channels, filters, stride, hparams, keep))
                channels = filters
        self.blocks = nn.ModuleList(blocks)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the filters of the last group."""
        return 4 * int(hparams.hidden_size)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the average of all places, [B, C], for each target."""
        (name,) = self.features.inputs
        x = features[name].embedded.permute(0, 3, 1, 2)  # [B, channels, height, width]
        x = self.init_bn(self.init_conv(x))
        for block in self.blocks:
            x = block(x)
        return dict.fromkeys(self.features.targets, Hidden(F.relu(x).mean((2, 3))))
