"""Weights read from another system's variables: what must fit, and what is passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn

from t2t_torch.errors import CheckpointError


def load_all(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Loads weights by our names.

    Args:
      model: whose weights they are.
      weights: one for each of the model's.

    Raises:
      CheckpointError: the model has no such weight, or one that is not among them, or a shape
        differs; the first ten are named.
    """
    own = model.state_dict()
    faults = [f"the model has no {name}" for name in sorted(weights.keys() - own.keys())]
    for name, here in own.items():
        if name not in weights:
            faults.append(f"there is no variable for {name}")
        elif weights[name].shape != here.shape:
            shapes = [list(weights[name].shape), list(here.shape)]
            faults.append(f"{name} is {shapes[0]}, the model's is {shapes[1]}")
    if faults:
        raise CheckpointError(
            "the variables do not fit the model:\n  "
            + "\n  ".join(faults[:10])
            + "\nMake the model from the run's own hparams.json and vocabularies."
        )
    model.load_state_dict(weights)


def is_training_state(name: str) -> bool:
    """Whether a TensorFlow variable of tensor2tensor belongs to the optimizer or counts steps."""
    return name.startswith(("training/", "global_step", "losses_avg")) or bool(
        re.search(r"/(Adam(_1)?|Momentum|[vm][rc]?|grad_acc)$", name)
    )
