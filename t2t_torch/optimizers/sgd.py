"""Gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
def sgd(parameters: Iterable[nn.Parameter], hparams: HParams) -> torch.optim.Optimizer:
    """Stochastic gradient descent, without momentum."""
    return torch.optim.SGD(parameters, lr=0.0, fused=True)
