"""Gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.optim.parameter_groups import are_sharded, as_groups
from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
@reads()
def sgd(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Stochastic gradient descent, without momentum."""
    groups = as_groups(parameters)
    return torch.optim.SGD(groups, lr=0.0, fused=not are_sharded(groups))
