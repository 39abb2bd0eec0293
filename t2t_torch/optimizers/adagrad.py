"""Adagrad, with TensorFlow's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

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
