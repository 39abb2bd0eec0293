"""Weight initialization: tensor2tensor's initializers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from t2t_torch.hparam import HParams
from t2t_torch.layers.attention import Projections


def initialize(module: nn.Module, hparams: HParams) -> None:
    """Initializes every linear map and 2-D convolution: weights by `initializer`, biases 0.

    Maps that share one matrix product are initialized separately, with the scale of separate maps.
    """
    fill = _FILLS[hparams.initializer]
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.Linear | nn.Conv2d):
                sizes = list(child.sizes) if isinstance(child, Projections) else [len(child.weight)]
                for weight in torch.split(child.weight, sizes):
                    fill(weight, hparams.initializer_gain)
                if child.bias is not None:
                    child.bias.zero_()


def initialize_lstm(module: nn.Module, hparams: HParams) -> None:
    """Initializes every LSTM in `module` as tensor2tensor does: a layer's weights as one matrix,
    biases 0, except 1 for forget gates (Jozefowicz et al. 2015).
    """
    fill = _FILLS[hparams.initializer]
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.LSTM | nn.LSTMCell):
                weights = [p for name, p in child.named_parameters() if "weight" in name]
                sizes = [weight.size(1) for weight in weights]
                joint = weights[0].new_empty(len(weights[0]), sum(sizes))
                fill(joint, hparams.initializer_gain)
                for weight, part in zip(weights, torch.split(joint, sizes, 1), strict=True):
                    weight.copy_(part)
                first, second = [p for name, p in child.named_parameters() if "bias" in name]
                second.zero_()
                first.zero_().chunk(4)[1].fill_(1.0)  # input, forget, cell, output


def _fan_average(weight: Tensor) -> float:
    area = weight[0, 0].numel() if weight.dim() > 2 else 1  # of a convolution
    return (weight.size(0) + weight.size(1)) / 2 * area


def _uniform_unit_scaling(weight: Tensor, gain: float) -> None:
    limit = math.sqrt(3 * gain / _fan_average(weight))
    weight.uniform_(-limit, limit)


def fill_truncated(weight: Tensor, deviation: float) -> None:
    """Fills a weight from TensorFlow's truncated normal distribution, of this deviation.

    It is cut off at two standard deviations and rescaled to keep the variance: 0.8796 is the
    standard deviation of a normal distribution truncated there.
    """
    scale = deviation / 0.87962566103423978
    nn.init.trunc_normal_(weight, std=scale, a=-2 * scale, b=2 * scale)


_FILLS: dict[str, Callable[[Tensor, float], object]] = {
    "orthogonal": lambda weight, gain: nn.init.orthogonal_(weight, gain),
    "uniform": lambda weight, gain: weight.uniform_(-0.1 * gain, 0.1 * gain),
    "normal_unit_scaling": lambda weight, gain: fill_truncated(
        weight, math.sqrt(gain / _fan_average(weight))
    ),
    "uniform_unit_scaling": _uniform_unit_scaling,
    # TensorFlow's `xavier_initializer` has no gain.
    "xavier": lambda weight, gain: nn.init.xavier_uniform_(weight),
}
