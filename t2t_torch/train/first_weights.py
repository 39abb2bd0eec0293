"""What a new run begins with: files of vectors, weights of another run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from t2t_torch.checkpoint.warm_start import WarmStartReport, warm_start
from t2t_torch.errors import HParamsError
from t2t_torch.train.opening import tell_warm_start

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Task


class FirstWeights(NamedTuple):
    """What a new model was given.

    Attributes:
      lines: what the task tells of its part.
      warm_start: None if it begins with nothing of another run.
    """

    lines: list[str]
    warm_start: WarmStartReport | None


def new_model(task: Task, device: torch.device) -> nn.Module:
    """Builds a task's model on a device.

    Raises:
      HParamsError: it needs more memory than there is.
    """
    try:
        return task.model().to(device)
    except (RuntimeError, MemoryError) as error:
        told = str(error)
        if not (
            isinstance(error, torch.OutOfMemoryError | MemoryError)
            or "allocate memory" in told
            or "Storage size calculation overflowed" in told
        ):
            raise
        raise HParamsError(
            f"the model of {task.name} needs more memory than this machine gives: "
            f"{told.rpartition('DefaultCPUAllocator: ')[2].splitlines()[0]}. Choose smaller sizes, "
            f"such as hidden_size={task.hparams.hidden_size // 10 or 1}; --dry_run tells how much "
            "memory a run needs."
        ) from error


def first_weights(task: Task, model: nn.Module, config: RunConfig) -> FirstWeights:
    """Gives a new model what its task and then its command ask for.

    Args:
      task: whose hparams may name files.
      model: as it was drawn.
      config: of the run.
    """
    lines, report = task.first_weights(model), None
    if config.warm_start_from:
        patterns = config.warm_start_patterns
        report = warm_start(model, config.warm_start_from, patterns=patterns)
    return FirstWeights(lines, report)


def tell_first_weights(estimator: Estimator, begun: FirstWeights | None) -> None:
    """Says what a new run begins with.

    Args:
      estimator: that begins to train, in the leading process.
      begun: None if it goes on from a checkpoint.
    """
    if begun is None:
        return
    for line in begun.lines:
        estimator.say(line)
    tell_warm_start(estimator, begun.warm_start)
