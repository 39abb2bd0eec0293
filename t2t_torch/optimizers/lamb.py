"""LAMB: Adam with a layer-wise rate, for large batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2t_torch.optim.parameter_groups import PlainOptimizer, decaying
from t2t_torch.optim.settings import reads
from t2t_torch.optimizers.adam import READS
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
@reads(*READS)
class Lamb(PlainOptimizer):
    """Scales Adam's update of each matrix to the norm of the matrix.

    You et al. 2020, arXiv:1904.00962, algorithm 2, with bias correction.  Vectors are neither
    decayed nor scaled, as in the authors' BERT.

    Args:
      parameters: parameters or groups.
      hparams: optimizer_adam_beta1, _beta2 and _epsilon; weight_decay.
    """

    def __init__(self, parameters: Iterable[Any], hparams: HParams) -> None:
        super().__init__(decaying(parameters, hparams.weight_decay), {"lr": 0.0})
        self._betas = hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2
        self._epsilon = hparams.optimizer_adam_epsilon

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """See `PlainOptimizer.update`."""
        for parameter in parameters:
            update = self._adam(parameter, parameter.grad)
            if parameter.ndim > 1:
                update.add_(parameter, alpha=group["weight_decay"])
                weight, moved = parameter.norm(), update.norm()
                update.mul_(torch.where((weight > 0) & (moved > 0), weight / moved, 1.0))
            parameter.add_(update, alpha=-group["lr"])

    def _adam(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Returns Adam's bias-corrected update direction."""
        slots = self.state[parameter]
        if not slots:
            slots["step"] = torch.zeros(())  # on the CPU: reading it needs no synchronization
            slots["exp_avg"] = torch.zeros_like(parameter)
            slots["exp_avg_sq"] = torch.zeros_like(parameter)
        slots["step"] += 1
        beta1, beta2 = self._betas
        slots["exp_avg"].lerp_(gradient, 1.0 - beta1)
        slots["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        steps = float(slots["step"])
        root = (slots["exp_avg_sq"] / (1.0 - beta2**steps)).sqrt_().add_(self._epsilon)
        moved: Tensor = (slots["exp_avg"] / (1.0 - beta1**steps)).div_(root)
        return moved
