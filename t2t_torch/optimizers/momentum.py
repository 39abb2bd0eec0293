"""Gradient descent, plain and with momentum, optionally Nesterov's."""

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
@reads("optimizer_momentum_momentum", "optimizer_momentum_nesterov")
def momentum(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Moves along the decaying sum of gradients.  Nesterov's variant: Sutskever et al. 2013."""
    groups = as_groups(parameters)
    optimizer = torch.optim.SGD(
        groups,
        lr=0.0,
        momentum=hparams.optimizer_momentum_momentum,
        # torch rejects Nesterov without momentum, which equals plain gradient descent.
        nesterov=hparams.optimizer_momentum_nesterov and hparams.optimizer_momentum_momentum > 0,
        fused=not are_sharded(groups),
    )
    optimizer.register_step_pre_hook(_begin_at_zero)
    return optimizer


def _begin_at_zero(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    """Initializes the sum of parameters at their first step with zero.

    Equal to torch's own initialization, the first gradient, except if the first step is skipped:
    torch's sum would then be uninitialized memory.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            slots = optimizer.state[parameter]
            if parameter.grad is not None and "momentum_buffer" not in slots:
                slots["momentum_buffer"] = torch.zeros_like(parameter)


@register_optimizer
@reads()
def sgd(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Stochastic gradient descent, without momentum."""
    groups = as_groups(parameters)
    return torch.optim.SGD(groups, lr=0.0, fused=not are_sharded(groups))
