"""`t2t-eval` of a run of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from t2t_torch.bin.trial_decode import check_flags
from t2t_torch.train.run_config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.train.estimator import Estimator

_OF_PROBLEMS = (
    *("data_dir", "problem", "model", "hparams_set", "hparams", "eval_metrics"),
    *("eval_use_test_set", "output", "decode_hparams"),
)


class Evaluated(NamedTuple):
    """What came of it.

    Attributes:
      trial: the name of its class.
      model: the name of its model's class.
      checkpoint: that was evaluated.
      metrics: those that are numbers; empty if a signal has ended it.
      signal: the number of one that has ended it, or 0.
      leads: whether this process tells it.
    """

    trial: str
    model: str
    checkpoint: Checkpoint
    metrics: dict[str, float]
    signal: int
    leads: bool


def evaluated(
    values: flags.FlagValues, restored: Callable[[Estimator, str | None], Checkpoint]
) -> Evaluated:
    """Evaluates a checkpoint on the trial's validation loader.

    Args:
      values: the flags.
      restored: restores the checkpoint that is asked for.

    Raises:
      UsageError: a flag means nothing for a trial.
    """
    check_flags(values, _OF_PROBLEMS)
    from t2t_torch.compute.distributed import join_world
    from t2t_torch.summary.summary import Summary
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.stop import StopRequest
    from t2t_torch.trial.opened_run import open_task

    asked: dict[str, Any] = values.flag_values_dict()
    config = RunConfig(eval_steps=asked["eval_steps"])
    with join_world(use_gpu=asked["worker_gpu"] > 0) as world, StopRequest() as stop:
        directory, _, task = open_task(Path(asked["output_dir"]), world)
        with Estimator(task, directory, config, world=world, stop=stop) as estimator:
            estimator.summary = Summary(directory.path, leads=False)  # the run stays as it is
            checkpoint = restored(estimator, asked["checkpoint_path"])
            metrics = dict(estimator.evaluate())
            model = type(estimator.model).__name__
            return Evaluated(
                task.name, model, checkpoint, metrics, estimator.signal or 0, world.leads
            )
