"""RAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.optim.settings import reads
from t2t_torch.optimizers.adam import READS
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
@reads(*READS)
def radam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam without warm-up: uses plain descent while its second moment covers few steps.

    Liu et al. 2020, arXiv:1908.03265.  Weight decay is part of the loss.
    """
    return torch.optim.RAdam(
        parameters,
        lr=0.0,
        betas=(hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2),
        eps=hparams.optimizer_adam_epsilon,
    )
