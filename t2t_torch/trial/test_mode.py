"""One batch of a trial through everything, before hours are spent on it: `--test_mode`."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.compute.distributed import World
from t2t_torch.errors import TrialError
from t2t_torch.summary.metrics_file import MetricsFile
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.trial import nested
from t2t_torch.trial.answers import OF_THE_LOOP
from t2t_torch.trial.definition import TRAIN_BATCH

if TYPE_CHECKING:
    from t2t_torch.trial.task import TrialTask


def tested(task: TrialTask, *, seed: int, device: torch.device) -> Iterator[str]:
    """Trains a step, evaluates a batch, saves and reads back; yields what a user should see.

    Nothing is left behind.

    Args:
      task: of the trial.
      seed: of the run.
      device: where the model computes.

    Raises:
      TrialError: something of the trial is not as it should be; or what was saved is read back as
        something else.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run")
        config = RunConfig(train_steps=1, local_eval_frequency=0, eval_steps=1, random_seed=seed)
        directory.claim_files(TaskRecord(trial=task.name, train_steps=1), {})
        world = World(0, 1, device)
        with Estimator(task, directory, config, world=world) as estimator:
            yield from _stepped(task, estimator)
            saved = {k: v.clone() for k, v in estimator.model.state_dict().items()}
        del estimator
        gc.collect()  # workers of its loader would hold the lock of the directory
        with Estimator(task, directory, config, world=world) as again:
            again.begin()
            for name, tensor in again.model.state_dict().items():
                if not torch.equal(tensor, saved[name]):
                    raise TrialError(
                        f"{name} is another one when it is read back from a checkpoint: the model "
                        "changes it when it is loaded."
                    )
    yield "checkpoint: written, read back, equal"
    yield "--test_mode: all of it runs"


def _stepped(task: TrialTask, estimator: Estimator) -> Iterator[str]:
    """Trains a step and evaluates a batch."""
    (batch,) = _first(estimator.begin().source)
    yield from _told("batch of training", batch.content)
    yield from _predicted(task, estimator, batch)
    estimator.train(1)
    estimator.saving.finish()
    yield from _told("after one step", _numbers(MetricsFile(estimator.directory.path)))
    yield from _told("validation", estimator.evaluate())


def _numbers(file: MetricsFile) -> dict[str, float]:
    """Returns what the step has reported of the trial's own."""
    (report,) = file.read()
    return {name: report[name] for name in report if name not in OF_THE_LOOP}


def _first(source: Any) -> Iterator[Any]:
    yield next(iter(source))


def _predicted(task: TrialTask, estimator: Estimator, batch: Any) -> Iterator[str]:
    """Tells what the model makes of a batch; a trial with `train_batch` calls it itself."""
    if task.definition.generation == TRAIN_BATCH:
        return
    inputs, _ = task.to_device(batch, estimator.world.device).content
    with torch.no_grad():
        predictions = estimator.model.eval()(inputs)
    yield from _told("predictions", predictions)


def _told(title: str, value: Any) -> Iterator[str]:
    yield title
    if isinstance(value, dict) and all(isinstance(one, float) for one in value.values()):
        yield from (f"  {name}: {number:.6g}" for name, number in value.items())
    else:
        yield from (f"  {line}" for line in nested.shapes(value))
