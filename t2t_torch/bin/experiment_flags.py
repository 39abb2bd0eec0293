"""What an experiment's configuration says in the terms of `t2t-trainer`'s flags."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from t2t_torch.bin import run_json
from t2t_torch.bin.trainer_flags import FLAGS, chosen, flag, given, run_config, trains
from t2t_torch.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.trial.batches import TrialTrainBatches
    from t2t_torch.trial.experiment_config import ExperimentConfig
    from t2t_torch.trial.lengths import Scale
    from t2t_torch.trial.task import TrialTask

FROM_CONFIG = (
    *("local_eval_frequency", "save_checkpoints_steps", "keep_checkpoint_max", "eval_steps"),
    *("keep_checkpoint_best", "eval_early_stopping_metric", "eval_early_stopping_metric_minimize"),
)
"""Flags whose values a configuration has, where the command does not."""


def told_of(config: ExperimentConfig) -> list[str]:
    """Says of what a configuration asks for how it is followed here, where that is not plain."""
    lines = []
    if config.ignored:
        lines.append(f"ignored here, for a cluster alone:  {', '.join(config.ignored)}")
    if config.checkpoint_policy == "none":
        lines.append(
            "checkpoint_policy none:  checkpoints are written all the same, as a run that stops "
            f"goes on from them; the newest {max(config.save_trial_latest, 1)} of them are kept, "
            "and none for its metric"
        )
    wanted = config.optimizations
    if wanted.mixed_precision != "O0" and wanted.precision is None:
        lines.append(
            f"optimizations.mixed_precision {wanted.mixed_precision}:  O1, O2 and O3 are one "
            "here: products in float16 (torch.autocast), weights in float32, the loss scaled"
        )
    return lines


def run_config_of(
    task: TrialTask, config: ExperimentConfig, directory: RunDirectory, world: World
) -> RunConfig:
    """Returns what flags and configuration say of the run; flags win.

    Args:
      task: of the trial; `--global_batch_size` changes how many batches make a step of it.
      config: of the experiment.
      directory: of the run; one that goes on without a configuration is what it was.
      world: the processes.

    Raises:
      ConfigError: nothing says how long to train.
      UsageError: no whole number of batches makes `--global_batch_size`.
    """
    source: TrialTrainBatches = task.train_batches(
        seed=0, start=0, rank=world.rank, world_size=world.size
    ).source
    if flag("global_batch_size"):
        task.hparams = task.hparams.replace(
            optimizer_multistep_accumulate_steps=_accumulate(source.records_per_batch, world)
        )
    scale = dataclasses.replace(
        config.scale(
            world_size=world.size,
            records_per_batch=source.records_per_batch,
            batches_per_epoch=source.batches_per_epoch,
        ),
        aggregation_frequency=task.hparams.optimizer_multistep_accumulate_steps or 1,
    )
    goes_on = (directory.path / run_json.NAME).exists() and not flag("config")
    told = {} if goes_on else _told_by(config, scale)
    if config.searcher.source_checkpoint:
        told["warm_start_from"] = config.searcher.source_checkpoint
    told["train_steps"] = _steps(config, scale, directory, goes_on=goes_on)
    for name, value in told.items():
        if not chosen(name):
            FLAGS[name].value = value
    return run_config(int(flag("train_steps")))


def _steps(
    config: ExperimentConfig, scale: Scale, directory: RunDirectory, *, goes_on: bool
) -> int:
    """Returns the steps at which the run ends: the flag's, the run's, the configuration's.

    Raises:
      ConfigError: nothing says how long to train.
    """
    steps = flag("train_steps") if given("train_steps") else 0
    if not steps and goes_on:
        steps = directory.task().train_steps
    if not steps and config.searcher.length:
        steps = scale.steps(config.searcher.length)
    if not steps and directory.exists:
        steps = directory.task().train_steps
    if not steps and trains():
        raise ConfigError(
            "nothing says how long to train: give --train_steps, or searcher.max_length in the "
            "configuration, such as max_length: {epochs: 10}."
        )
    return steps or 1


def _told_by(config: ExperimentConfig, scale: Scale) -> dict[str, Any]:
    """Returns what a configuration says of how a run is evaluated and saved, by `FROM_CONFIG`."""
    periods = {
        "local_eval_frequency": ("min_validation_period", config.min_validation_period),
        "save_checkpoints_steps": ("min_checkpoint_period", config.min_checkpoint_period),
    }
    told: dict[str, Any] = {
        name: scale.period(period, key) if period else 0 for name, (key, period) in periods.items()
    }
    newest = max(config.save_trial_latest, 1)
    told["keep_checkpoint_max"] = 0 if config.checkpoint_policy == "all" else newest
    rated = bool(config.searcher.metric) and config.checkpoint_policy != "none"
    told["keep_checkpoint_best"] = config.save_trial_best if rated else 0
    told["eval_steps"] = 0
    if config.searcher.metric:
        told["eval_early_stopping_metric"] = config.searcher.metric
        told["eval_early_stopping_metric_minimize"] = config.searcher.smaller_is_better
    return told


def _accumulate(records_per_batch: float, world: World) -> int:
    """Returns the batches of a step in each process that make `--global_batch_size`.

    Raises:
      UsageError: no whole number does.
    """
    wanted, each = int(flag("global_batch_size")), records_per_batch * world.size
    count = round(wanted / each)
    if count < 1 or abs(count * each - wanted) > 1e-6:
        raise UsageError(
            f"--global_batch_size={wanted}: {world.size} processes with batches of "
            f"{records_per_batch:g} make {each:g} in a step, or a multiple. Give one of these."
        )
    return count
