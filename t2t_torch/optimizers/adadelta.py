"""Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_DECAY = 0.95  # Zeiler 2012, table 1; Kim 2014's code
_EPSILON = 1e-6


@register_optimizer
@reads()
def adadelta(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Scales updates by the size of recent updates.  Zeiler 2012, arXiv:1212.5701.

    A learning rate of 1 gives the method of the paper.
    """
    return torch.optim.Adadelta(parameters, lr=0.0, rho=_DECAY, eps=_EPSILON)
