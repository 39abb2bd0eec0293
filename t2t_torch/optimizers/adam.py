"""Adam, by tensor2tensor's names, made of torch's fused one.

An optimizer is a function of (parameters, hparams); its learning rate is set before each step from
the schedule.  `weight_decay` of an optimizer that does not decay by itself is part of the loss, as
in tensor2tensor: see `gradient.py`.

What differs from tensor2tensor: `adam_w` decays by learning rate times `weight_decay` and once;
tensor2tensor's decays by `weight_decay` whatever the rate, and again in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
def adam(parameters: Iterable[nn.Parameter], hparams: HParams) -> torch.optim.Optimizer:
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
def true_adam(parameters: Iterable[nn.Parameter], hparams: HParams) -> torch.optim.Optimizer:
    """Adam; tensor2tensor's other name for it (its `adam` is the lazy one)."""
    return adam(parameters, hparams)


@register_optimizer
def multistep_adam(parameters: Iterable[nn.Parameter], hparams: HParams) -> torch.optim.Optimizer:
    """Adam; `optimizer_multistep_accumulate_steps` works with every optimizer here."""
    return adam(parameters, hparams)


@register_optimizer
def adam_w(parameters: Iterable[nn.Parameter], hparams: HParams) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay.  Loshchilov and Hutter 2019, arXiv:1711.05101.

    Vectors (biases, layer norms) do not decay.
    """
    parameters = list(parameters)
    return torch.optim.AdamW(
        [
            {
                "params": [p for p in parameters if p.ndim > 1],
                "weight_decay": hparams.weight_decay,
            },
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=0.0,
        betas=(hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2),
        eps=hparams.optimizer_adam_epsilon,
        fused=True,
    )


class _UncorrectedEpsilon:
    """Makes torch's epsilon that of tensor2tensor, before each step of an Adam.

    torch adds it to the root of the bias-corrected second moment, tensor2tensor (and the paper's
    faster form, section 2) to that of the uncorrected one: there it counts 1/sqrt(1 - beta2^t) as
    much.
    """

    def __init__(self, hparams: HParams) -> None:
        self._epsilon = hparams.optimizer_adam_epsilon
        self._beta2 = hparams.optimizer_adam_beta2
        self._updates: int | None = None

    def __call__(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Sets the epsilon of the update that comes."""
        if self._updates is None:  # read once, after a resume too; then counted, as reading waits
            steps = [int(state["step"]) for state in optimizer.state.values()]
            self._updates = max(steps, default=0)
        self._updates += 1
        epsilon = self._epsilon / math.sqrt(1.0 - self._beta2**self._updates)
        for group in optimizer.param_groups:
            group["eps"] = epsilon
