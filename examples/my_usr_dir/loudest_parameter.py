"""A hook of your own: it watches a run, and its memory is part of the checkpoints.

    t2t-trainer --t2t_usr_dir=examples/my_usr_dir --hooks=loudest_parameter ...

At each report it says which parameter has had the largest gradient in most of the steps so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from t2t_torch.registry import register_hook
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.task import Hook


@register_hook
class LoudestParameter(Hook):
    """Counts the steps in which each parameter has had the largest gradient."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()

    def before_update(self, estimator: Estimator) -> None:
        """Looks at the gradients, which are those that the optimizer gets."""
        named = [
            (name, parameter.grad.norm())
            for name, parameter in estimator.model.named_parameters()
            if parameter.grad is not None
        ]
        loudest = torch.stack([norm for _, norm in named]).argmax()
        self.steps[named[int(loudest)][0]] += 1

    def after_step(self, estimator: Estimator) -> None:
        """Tells it, and puts it in TensorBoard."""
        step = estimator.state.step
        if step % estimator.config.log_step_count_steps == 0:
            name, count = self.steps.most_common(1)[0]
            estimator.say(f"step {step}  loudest: {name}, in {count} of {self.steps.total()} steps")
            estimator.summary.scalars({f"loudest/{n}": c for n, c in self.steps.items()}, step)

    def state(self) -> dict[str, Any]:
        """Returns the counts: a checkpoint keeps them."""
        return dict(self.steps)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back the counts of the checkpoint that training goes on from."""
        self.steps = Counter(state)
