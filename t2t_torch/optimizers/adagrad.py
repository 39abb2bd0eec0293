"""Adagrad and its successors Adadelta and RMSProp, with TensorFlow's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.optim.parameter_groups import PlainOptimizer
from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_FIRST_SUM = 0.1  # tf.train.AdagradOptimizer's initial_accumulator_value


@register_optimizer
@reads()
def adagrad(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Divides by the root of the sum of all squared gradients.  Duchi et al. 2011.

    The sum starts at 0.1, so no epsilon is needed.
    """
    return torch.optim.Adagrad(parameters, lr=0.0, initial_accumulator_value=_FIRST_SUM, eps=0.0)


_DELTA_DECAY = 0.95  # Zeiler 2012, table 1; Kim 2014's code
_DELTA_EPSILON = 1e-6


@register_optimizer
@reads()
def adadelta(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Scales updates by the size of recent updates.  Zeiler 2012, arXiv:1212.5701.

    A learning rate of 1 gives the method of the paper.
    """
    return torch.optim.Adadelta(parameters, lr=0.0, rho=_DELTA_DECAY, eps=_DELTA_EPSILON)


_DECAY = 0.9  # tf.train.RMSPropOptimizer's decay and epsilon
_EPSILON = 1e-10


@register_optimizer("rms_prop")
@reads()
class RMSProp(PlainOptimizer):
    """Divides by the root of the running mean of squared gradients, which starts at 1.

    Tieleman and Hinton 2012, lecture 6.5 of Neural Networks for Machine Learning; with TensorFlow's
    defaults.  torch's version starts its mean at zero and adds epsilon outside the root, a
    different method for gradients of 1e-5 and smaller.

    Args:
      parameters: parameters or groups.
      hparams: unused.
    """

    def __init__(self, parameters: Iterable[Any], hparams: HParams) -> None:
        super().__init__(parameters, {"lr": 0.0})

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """See `PlainOptimizer.update`."""
        if not parameters:
            return
        for parameter in parameters:
            if "mean_square" not in self.state[parameter]:
                self.state[parameter]["mean_square"] = torch.ones_like(parameter)
        gradients = [p.grad for p in parameters]
        means = [self.state[p]["mean_square"] for p in parameters]
        torch._foreach_mul_(means, _DECAY)
        torch._foreach_addcmul_(means, gradients, gradients, 1.0 - _DECAY)
        roots = torch._foreach_add(means, _EPSILON)
        torch._foreach_sqrt_(roots)
        torch._foreach_addcdiv_(parameters, gradients, roots, -group["lr"])
