"""Adam, by tensor2tensor's names, made of torch's fused one.

An optimizer is a function of (parameters, hparams): parameters as torch's take them, alone, with
names, or in groups.  The loop sets each group's `lr` and `updates`, the steps done, before a step.
`weight_decay` of an optimizer that does not decay by itself is part of the loss, as in
tensor2tensor: see `gradient.py`.

What differs from tensor2tensor: `adam_w` decays by learning rate times `weight_decay` and once, and
leaves vectors alone; tensor2tensor's decays all by `weight_decay` whatever the rate, and again in
the loss.
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
"""The settings of every Adam."""


@register_optimizer
@reads(*READS)
def adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam.  Kingma and Ba 2015, arXiv:1412.6980, with tensor2tensor's epsilon."""
    optimizer = torch.optim.Adam(
        parameters,
        lr=0.0,
        betas=(hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2),
        eps=hparams.optimizer_adam_epsilon,
        fused=True,
    )
    optimizer.register_step_pre_hook(_UncorrectedEpsilon(hparams))
    return optimizer


@register_optimizer
@reads(*READS)
def true_adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam; tensor2tensor's other name for it (its `adam` is the lazy one)."""
    return adam(parameters, hparams)


@register_optimizer
@reads(*READS)
def multistep_adam(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam; `optimizer_multistep_accumulate_steps` works with every optimizer here."""
    return adam(parameters, hparams)


@register_optimizer
@reads(*READS)
def adam_w(parameters: Iterable[Any], hparams: HParams) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay.  Loshchilov and Hutter 2019, arXiv:1711.05101.

    Vectors (biases, layer norms) do not decay.
    """
    optimizer = torch.optim.AdamW(
        decaying(parameters, hparams.weight_decay),
        lr=0.0,
        betas=(hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2),
        eps=hparams.optimizer_adam_epsilon,
        fused=True,
    )
    optimizer.register_step_pre_hook(_UncorrectedEpsilon(hparams))
    return optimizer


class _UncorrectedEpsilon:
    """Makes torch's epsilon that of tensor2tensor, before each step of an Adam.

    torch adds it to the root of the bias-corrected second moment, tensor2tensor (and the paper's
    faster form, section 2) to that of the uncorrected one: there it counts 1/sqrt(1 - beta2^t) as
    much.  t is counted by the loop, not read from the moments: that would wait for the device, and
    be another number after a step that was skipped.
    """

    def __init__(self, hparams: HParams) -> None:
        self._epsilon = hparams.optimizer_adam_epsilon
        self._beta2 = hparams.optimizer_adam_beta2

    def __call__(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Sets the epsilon of the update that comes."""
        for group in optimizer.param_groups:
            updates = group.get("updates")
            if updates is None:  # in somebody's own loop
                steps = (optimizer.state[p].get("step", 0) for p in group["params"])
                updates = int(max(steps, default=0))
            # The moments of what was frozen begin when it is unfrozen.
            begun = max(updates - group.get("unfreeze_step", 0), 0) + 1
            group["eps"] = self._epsilon / math.sqrt(1.0 - self._beta2**begun)
