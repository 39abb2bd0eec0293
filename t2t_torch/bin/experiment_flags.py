"""What an experiment's configuration says in the terms of `t2t-trainer`'s flags."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from t2t_torch.bin import named_run, run_json
from t2t_torch.bin.trainer_flags import FLAGS, flag, given, run_config, trains
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
            f"goes on from them; the newest {max(config.save_trial_latest, 1)} of them are kept"
            + (f", and that of the best {metric}" if (metric := config.searcher.metric) else "")
        )
    lines += [*_kept_otherwise(config), *_started_otherwise(config)]
    if config.perform_initial_validation and flag("schedule") == "train":
        lines.append("perform_initial_validation:  --schedule=train evaluates nothing")
    wanted = config.optimizations
    if wanted.mixed_precision != "O0" and wanted.precision is None:
        lines.append(
            f"optimizations.mixed_precision {wanted.mixed_precision}:  O1, O2 and O3 are one "
            "here: products in float16 (torch.autocast), weights in float32, the loss scaled"
        )
    return lines


def _started_otherwise(config: ExperimentConfig) -> list[str]:
    """Says if there are not as many processes as are asked for."""
    slots, processes = config.resources.slots_per_trial, named_run.processes()
    wanted = config.resources
    if (wanted.optimized_parallel or wanted.distributed) and processes == 1 and trains():
        name = "optimized_parallel" if wanted.optimized_parallel else "distributed"
        count = slots if slots > 1 else "N"
        return [
            f"resources.{name} true:  here it is 1 process; several, one for each GPU, by torchrun "
            f"--nproc-per-node={count} -m t2t_torch.bin.trainer ..."
        ]
    asked = "slots_per_trial" in (config.written.get("resources") or {})
    if not asked or slots == processes or not trains():
        return []
    here = "1 process" if processes == 1 else f"{processes} processes"
    way = f"torchrun --nproc-per-node={slots} -m t2t_torch.bin.trainer ..."
    way = way if slots > 1 else "t2t-trainer without torchrun"
    return [f"resources.slots_per_trial {slots}:  here it is {here}; {slots} by {way}"]


def _kept_otherwise(config: ExperimentConfig) -> list[str]:
    """Says which checkpoints are kept where it is not what is written."""
    lines = []
    if config.save_experiment_best:
        lines.append(
            f"save_experiment_best {config.save_experiment_best}:  not followed, as each training "
            f"keeps its own: the best {max(config.save_trial_best, 1)} (save_trial_best)"
        )
    if not config.save_trial_latest and config.checkpoint_policy == "best":
        lines.append(
            "save_trial_latest 0:  the newest checkpoint is kept all the same, as 1 says: a run "
            "that stops goes on from it"
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
        if name == "train_steps" or not given(name):
            FLAGS[name].value = value
    _watch(task)
    return run_config(int(flag("train_steps")))


def _watch(task: TrialTask) -> None:
    """Lets evaluations be refused that lack the metric of a flag which something waits for.

    Where nothing does, its default is the name of no metric of the trial's, and of no use.
    """
    name = "eval_early_stopping_metric"
    waits = flag("eval_early_stopping_steps") or flag("keep_checkpoint_best")
    if given(name) or flag(name) != FLAGS[name].default or waits:
        task.watch(flag(name), f"--{name}")


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
    make = "1 process makes" if world.size == 1 else f"{world.size} processes make"
    count = round(wanted / each)
    if count < 1 or abs(count * each - wanted) > 1e-6:
        raise UsageError(
            f"--global_batch_size={wanted}: {make} {each:g} in a step, with batches of "
            f"{records_per_batch:g}, or a multiple. Give one of these."
        )
    return count
