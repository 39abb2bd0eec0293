"""Gradient descent with momentum, Nesterov's on request."""

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
    """Moves by the decaying sum of the gradients.  Nesterov's: Sutskever et al. 2013."""
    groups = as_groups(parameters)
    optimizer = torch.optim.SGD(
        groups,
        lr=0.0,
        momentum=hparams.optimizer_momentum_momentum,
        # torch refuses Nesterov's without momentum, where it is plain descent.
        nesterov=hparams.optimizer_momentum_nesterov and hparams.optimizer_momentum_momentum > 0,
        fused=not are_sharded(groups),
    )
    optimizer.register_step_pre_hook(_begin_at_zero)
    return optimizer


def _begin_at_zero(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    """Gives what comes to its first step a sum of zero.

    The same as torch's own beginning, the first gradient, but for a first step that is skipped: it
    leaves torch's sum unset, any bytes that lay in memory.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            slots = optimizer.state[parameter]
            if parameter.grad is not None and "momentum_buffer" not in slots:
                slots["momentum_buffer"] = torch.zeros_like(parameter)
