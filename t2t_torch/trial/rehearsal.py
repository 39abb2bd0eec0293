"""The first evaluation of a trial, tried before training: its errors come then, and not at the end.

One batch is evaluated and its metrics are joined as those of an evaluation are; nothing is written,
and the run is afterwards as if it had not been.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.trial.item_randomness import isolated
from t2t_torch.trial.task import TrialTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.task import Task


@torch.no_grad()
def rehearse(estimator: Estimator) -> None:
    """Evaluates the first batch of each process; all processes must call it, once training began.

    Weights, buffers, generators, the optimizer's settings, a scheduler and the trial's own
    attributes are put back.

    Args:
      estimator: of a `TrialTask`, whose `begin` was called.

    Raises:
      TrialError: the evaluation would fail: no metrics, or not the one that says what is best.
    """
    run, task, world = estimator.begin(), estimator.task, estimator.world
    assert isinstance(task, TrialTask)
    model = estimator.model.eval()
    before = task.state(run.optimizer, world)
    devices = [world.device] if world.device.type == "cuda" else []
    generators = torch.random.fork_rng(devices)
    with (
        _kept(model),
        task.attributes_kept(),
        generators,
        isolated(0),
        warnings.catch_warnings(),
    ):
        evaluator = task.evaluator()
        warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step")  # it is undone
        for batch in _first(task, estimator):
            on_device = task.to_device(batch, world.device)
            with estimator.precision.autocast():
                output = task.evaluated(model, on_device)
            evaluator.update(output, on_device)
        task.agree(evaluator, world)
        world.sum(evaluator.sums)
        task.results(evaluator)
    if task.state(run.optimizer, world) != before:
        task.restore(run.optimizer, before, task.tensors_of_state(), world)
    estimator.say("validation was tried with one batch before training, as it comes at the end")


def _first(task: Task, estimator: Estimator) -> Iterator[Any]:
    world = estimator.world
    batches = task.eval_batches(estimator.config.eval_split, rank=world.rank, world_size=world.size)
    for batch in batches:
        yield batch
        return


@contextlib.contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Gives parameters and buffers back as they were; the copies are in the CPU's memory."""

    def tensors() -> list[Tensor]:
        return [*model.parameters(), *model.buffers()]

    copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors()]
    try:
        yield
    finally:
        for tensor, copy in zip(tensors(), copies, strict=True):
            tensor.detach().copy_(copy)
