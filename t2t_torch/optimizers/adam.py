"""Adam under tensor2tensor's names, based on torch's fused implementation.

An optimizer is a function of (parameters, hparams): parameters as torch's optimizers take them,
plain, named, or in groups.  Before each step the training loop sets `lr` and `updates` (steps
done) of each group.  For optimizers without their own decay `weight_decay` is part of the loss,
as in tensor2tensor: see `gradient.py`.

Difference to tensor2tensor: `adam_w` decays once, by learning rate times `weight_decay`, and
excludes vectors; tensor2tensor's decays all weights by `weight_decay` regardless of the rate, and
again in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.optim.parameter_groups import decaying
from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


READS = ("optimizer_adam_beta1", "optimizer_adam_beta2", "optimizer_adam_epsilon")
"""Hyperparameters used by every Adam variant."""


@register_optimizer
@reads(*READS)
def adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam.  Kingma and Ba 2015, arXiv:1412.6980, with tensor2tensor's epsilon."""
    return _fused(torch.optim.Adam, parameters, hparams)


@register_optimizer
@reads(*READS)
def true_adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam, under tensor2tensor's other name (its `adam` is the lazy variant)."""
    return adam(parameters, hparams)


@register_optimizer
@reads(*READS)
def multistep_adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam; `optimizer_multistep_accumulate_steps` works with every optimizer in this library."""
    return adam(parameters, hparams)


@register_optimizer
@reads(*READS)
def adam_w(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay.  Loshchilov and Hutter 2019, arXiv:1711.05101.

    Vectors (biases, layer norms) do not decay.
    """
    return _fused(torch.optim.AdamW, decaying(parameters, hparams.weight_decay), hparams)


@register_optimizer
@reads(*READS)
def radam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam without warm-up: uses plain descent while its second moment covers few steps.

    Liu et al. 2020, arXiv:1908.03265.  Weight decay is part of the loss.
    """
    return torch.optim.RAdam(parameters, lr=0.0, **_moments(hparams))


def _fused(
    kind: type[torch.optim.Adam], parameters: Iterable[Any], hparams: HParams
) -> torch.optim.Optimizer:
    """Returns a fused optimizer of this kind with tensor2tensor's epsilon."""
    optimizer = kind(parameters, lr=0.0, fused=True, **_moments(hparams))
    optimizer.register_step_pre_hook(_UncorrectedEpsilon(hparams))
    return optimizer


def _moments(hparams: HParams) -> dict[str, Any]:
    betas = (hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2)
    return {"betas": betas, "eps": hparams.optimizer_adam_epsilon}


class _UncorrectedEpsilon:
    """Pre-step hook that converts tensor2tensor's epsilon to torch's.

    torch adds epsilon to the root of the bias-corrected second moment, tensor2tensor (and the
    paper's faster form, section 2) to that of the uncorrected one, where it is effectively larger
    by 1/sqrt(1 - beta2^t).  t comes from the training loop rather than from the moments: reading
    those would synchronize with the device, and their count differs after a skipped step.
    """

    def __init__(self, hparams: HParams) -> None:
        self._epsilon = hparams.optimizer_adam_epsilon
        self._beta2 = hparams.optimizer_adam_beta2

    def __call__(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Sets the epsilon of the next update."""
        for group in optimizer.param_groups:
            updates = group.get("updates")
            if updates is None:  # in a custom training loop
                steps = (optimizer.state[p].get("step", 0) for p in group["params"])
                updates = int(max(steps, default=0))
            # The moments of frozen parameters start when they are unfrozen.
            started = max(updates - group.get("unfreeze_step", 0), 0) + 1
            group["eps"] = self._epsilon / math.sqrt(1.0 - self._beta2**started)
