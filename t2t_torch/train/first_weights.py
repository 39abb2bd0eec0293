"""What a new run begins with: files of vectors, weights of another run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

from t2t_torch.checkpoint.warm_start import WarmStartReport, warm_start
from t2t_torch.errors import HParamsError
from t2t_torch.train.backward import is_out_of_memory
from t2t_torch.train.opening import tell_warm_start

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Task


_OVERFLOWS = ("Storage size calculation overflowed", "Overflow when unpacking long")
_NO_SIZE = re.compile("batch|length|rows|seed|steps|swa_|passes")
"""Matches the names of integer settings that do not change the size of a model."""


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
    with memory_for(task):
        return task.model().to(device)


@contextlib.contextmanager
def memory_for(task: Task) -> Iterator[None]:
    """Replaces the errors of Python and torch for too little memory.

    Args:
      task: whose model is built or measured inside the block.

    Raises:
      HParamsError: it needs more memory than there is; names the largest setting.
    """
    try:
        yield
    except (RuntimeError, TypeError, MemoryError) as error:
        told = str(error).rpartition("DefaultCPUAllocator: ")[2].partition("\n")[0]
        if not (
            isinstance(error, MemoryError)  # often without a message
            or is_out_of_memory(error)
            or any(overflow in told for overflow in _OVERFLOWS)
        ):
            raise
        raise HParamsError(
            f"the model of {task.name} needs more memory than this machine has"
            f"{f' ({told})' if told else ''}. Reduce {_largest_setting(task)}; then --dry_run "
            "prints how much memory a run needs."
        ) from error


def _largest_setting(task: Task) -> str:
    """Returns the setting that is probably too large, and a smaller value, for messages."""
    sizes = {
        name: value
        for name, value in task.told_hparams().items()
        if type(value) is int and value > 1 and not _NO_SIZE.search(name)
    }
    if not sizes:
        return "the sizes of its layers"
    fields = type(task.hparams).model_fields

    def growth(name: str) -> float:
        return sizes[name] / ((fields[name].default if name in fields else 0) or 1)

    name = max(sizes, key=growth)
    return f"{name}={sizes[name]}, for example to {name}={sizes[name] // 10 or 1}"


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
