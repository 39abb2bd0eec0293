"""Training of a user's `PyTorchTrial`, for `t2t-trainer --trial=...`."""

from __future__ import annotations

import dataclasses
import gc
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch.errors import ConfigError, T2TError, UsageError
from t2t_torch.reporter import message, output
from t2t_torch.train.run_code import keep_code, open_code, recorded_usr_dirs
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.config import ExperimentConfig
from t2t_torch.trial.run_record import (
    NAME,
    RunRecord,
    by_name,
    check_functions,
    chosen_values,
    copies_of,
    module_file_of,
    parse_changes,
    place_of_code,
)
from t2t_torch.workflows import config_file, train_record
from t2t_torch.workflows.train_settings import TrainSettings

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Hook
    from t2t_torch.trial.config import Scale
    from t2t_torch.trial.task import TrialTask


FROM_CONFIG = (
    *("local_eval_frequency", "save_checkpoints_steps", "keep_checkpoint_max", "eval_steps"),
    *("keep_checkpoint_best", "eval_early_stopping_metric", "eval_early_stopping_metric_minimize"),
)
"""Settings whose values a configuration has, where the command does not."""


def messages_of(settings: TrainSettings, config: ExperimentConfig) -> list[str]:
    """Returns messages about settings of an experiment that work differently here."""
    lines = []
    if config.ignored:
        lines.append(f"ignored here, for a cluster alone:  {', '.join(config.ignored)}")
    if config.checkpoint_policy == "none":
        lines.append(
            "checkpoint_policy none:  checkpoints are written all the same, as a run that stops "
            f"resumes from them; the newest {max(config.save_trial_latest, 1)} of them are kept"
            + (f", and that of the best {metric}" if (metric := config.searcher.metric) else "")
        )
    lines += [*_retention_messages(config), *_process_messages(settings, config)]
    if config.perform_initial_validation and settings.schedule == "train":
        lines.append("perform_initial_validation:  --schedule=train evaluates nothing")
    wanted = config.optimizations
    if wanted.mixed_precision != "O0" and wanted.precision is None:
        lines.append(
            f"optimizations.mixed_precision {wanted.mixed_precision}:  O1, O2 and O3 are one "
            "here: products in float16 (torch.autocast), weights in float32, the loss scaled"
        )
    return lines


def _process_messages(settings: TrainSettings, config: ExperimentConfig) -> list[str]:
    """Returns a message if the number of processes differs from the requested one."""
    slots, processes = config.resources.slots_per_trial, train_record.processes()
    wanted = config.resources
    if (wanted.optimized_parallel or wanted.distributed) and processes == 1 and settings.trains:
        name = "optimized_parallel" if wanted.optimized_parallel else "distributed"
        count = slots if slots > 1 else "N"
        return [
            f"resources.{name} true:  here it is 1 process; several, one for each GPU, by torchrun "
            f"--nproc-per-node={count} -m t2t_torch.bin.trainer ..."
        ]
    requested = "slots_per_trial" in (config.written.get("resources") or {})
    if not requested or slots == processes or not settings.trains:
        return []
    here = "1 process" if processes == 1 else f"{processes} processes"
    way = f"torchrun --nproc-per-node={slots} -m t2t_torch.bin.trainer ..."
    way = way if slots > 1 else "t2t-trainer without torchrun"
    return [f"resources.slots_per_trial {slots}:  here it is {here}; {slots} by {way}"]


def _retention_messages(config: ExperimentConfig) -> list[str]:
    """Returns messages if other checkpoints are kept than the experiment requests."""
    lines = []
    if config.save_experiment_best:
        lines.append(
            f"save_experiment_best {config.save_experiment_best}:  not followed, as each training "
            f"keeps its own: the best {max(config.save_trial_best, 1)} (save_trial_best)"
        )
    if not config.save_trial_latest and config.checkpoint_policy == "best":
        lines.append(
            "save_trial_latest 0:  the newest checkpoint is kept all the same, as 1 says: a run "
            "that stops resumes from it"
        )
    return lines


def run_config_of(
    settings: TrainSettings,
    task: TrialTask,
    config: ExperimentConfig,
    directory: RunDirectory,
    world: World,
) -> tuple[TrainSettings, RunConfig]:
    """Returns the settings of the run, from settings and the experiment; settings win.

    Args:
      settings: the settings.
      task: task of the trial; `--global_batch_size` changes its batches per step.
      config: the experiment.
      directory: the run directory; a run resumed without a configuration keeps its settings.
      world: the processes.

    Raises:
      ConfigError: the length of training is unknown.
      UsageError: no whole number of batches makes `--global_batch_size`.
    """
    source = task.train_batches(seed=0, start=0, rank=world.rank, world_size=world.size)
    if settings.global_batch_size:
        task.hparams = task.hparams.replace(
            optimizer_multistep_accumulate_steps=_accumulate(
                settings, source.records_per_batch, world
            )
        )
    scale = dataclasses.replace(
        config.scale(
            world_size=world.size,
            records_per_batch=source.records_per_batch,
            batches_per_epoch=source.batches_per_epoch,
        ),
        aggregation_frequency=task.hparams.optimizer_multistep_accumulate_steps or 1,
    )
    goes_on = (directory.path / config_file.NAME).exists() and not settings.config
    values = {} if goes_on else _from_config(config, scale)
    if config.searcher.source_checkpoint:
        values["warm_start_from"] = config.searcher.source_checkpoint
    steps = _steps(settings, config, scale, directory, goes_on=goes_on)
    settings = settings.with_defaults(**values)
    _watch(settings, task)
    return settings, settings.run_config(steps)


def _watch(settings: TrainSettings, task: TrialTask) -> None:
    """Makes evaluations fail if they lack the monitored metric and something depends on it.

    The default of the flag is not a metric of most trials, so otherwise it is ignored.
    """
    name = "eval_early_stopping_metric"
    waits = settings.eval_early_stopping_steps or settings.keep_checkpoint_best
    metric = settings.eval_early_stopping_metric
    if name in settings.given or metric != settings.declared()[name].default or waits:
        task.watch(metric, f"--{name}")


def _steps(
    settings: TrainSettings,
    config: ExperimentConfig,
    scale: Scale,
    directory: RunDirectory,
    *,
    goes_on: bool,
) -> int:
    """Returns the steps at which the run ends: from the flag, the run or the experiment.

    Raises:
      ConfigError: none of them sets it.
    """
    steps = settings.train_steps if "train_steps" in settings.given else 0
    if not steps and goes_on:
        steps = directory.task().train_steps
    if not steps and config.searcher.length:
        steps = scale.steps(config.searcher.length)
    if not steps and directory.exists:
        steps = directory.task().train_steps
    if not steps and settings.trains:
        raise ConfigError(
            "nothing says how long to train: give --train_steps, or searcher.max_length in the "
            "configuration, such as max_length: {epochs: 10}."
        )
    return steps or 1


def _from_config(config: ExperimentConfig, scale: Scale) -> dict[str, Any]:
    """Returns the values of the settings in `FROM_CONFIG` that an experiment sets."""
    periods = {
        "local_eval_frequency": ("min_validation_period", config.min_validation_period),
        "save_checkpoints_steps": ("min_checkpoint_period", config.min_checkpoint_period),
    }
    values: dict[str, Any] = {
        name: scale.period(period, key) if period else 0 for name, (key, period) in periods.items()
    }
    newest = max(config.save_trial_latest, 1)
    values["keep_checkpoint_max"] = 0 if config.checkpoint_policy == "all" else newest
    rated = bool(config.searcher.metric) and config.checkpoint_policy != "none"
    values["keep_checkpoint_best"] = config.save_trial_best if rated else 0
    values["eval_steps"] = 0
    if config.searcher.metric:
        values["eval_early_stopping_metric"] = config.searcher.metric
        values["eval_early_stopping_metric_minimize"] = config.searcher.smaller_is_better
    return values


def _accumulate(settings: TrainSettings, records_per_batch: float, world: World) -> int:
    """Returns the batches per step and process that make `--global_batch_size`.

    Raises:
      UsageError: no whole number does.
    """
    wanted, each = int(settings.global_batch_size), records_per_batch * world.size
    make = "1 process makes" if world.size == 1 else f"{world.size} processes make"
    count = round(wanted / each)
    if count < 1 or abs(count * each - wanted) > 1e-6:
        raise UsageError(
            f"--global_batch_size={wanted}: {make} {each:g} in a step, with batches of "
            f"{records_per_batch:g}, or a multiple. Give one of these."
        )
    return count


_IN_TURNS = ("continuous_train_and_eval", "train_and_evaluate")
SCHEDULES = (*_IN_TURNS, "train", "evaluate", "continuous_eval", "test")
"""What `--schedule` may be for a trial."""

_OF_PROBLEMS = (
    *("problem", "model", "hparams_set", "data_dir", "tmp_dir", "generate_data", "eval_metrics"),
    *("teacher", "dry_run", "help_hparams", "print_config", "eval_use_test_set", "loader_workers"),
    *("reduce_lr_on_plateau_factor", "decode_hparams", "decode_from_file", "decode_to_file"),
    *("decode_reference", "decode_problem", "train_epochs", "verify_data"),
)
"""Flags that mean nothing for a trial."""


_NOWHERE = Path(os.devnull, "no-output-dir")


def is_requested(settings: TrainSettings) -> bool:
    """Returns True if the settings name a trial, or the run of one."""
    if settings.trial:
        return True
    directory = RunDirectory(settings.output_dir or "")
    return bool(settings.output_dir) and directory.exists and bool(directory.task().trial)


def train(settings: TrainSettings, callbacks: Sequence[Hook], stop: StopRequest) -> int:
    """Trains and evaluates a trial.

    Args:
      settings: what is trained, and how.
      callbacks: hooks in addition to those of `hooks`.
      stop: request to save and stop.

    Returns:
      The number of the signal that stopped the run; 0 if none did.

    Raises:
      InvalidHP: the trial says that its hyperparameters cannot be trained.
      T2TError: a setting does not fit, or the trial cannot be trained.
    """
    _check_settings(settings)
    directory = RunDirectory(settings.output_dir or _NOWHERE)
    settings, lines = _recall(settings, directory)
    record, config = _record(settings, directory)
    if train_record.leads():
        for line in [*lines, *messages_of(settings, config)]:
            message(line)
    pytorch_trial.name_run(Path(settings.output_dir) if settings.output_dir else None)
    if settings.test_mode:
        return _test(settings, record, config)
    return _with_restarts(settings, directory, record, config, callbacks, stop)


def _recall(settings: TrainSettings, directory: RunDirectory) -> tuple[TrainSettings, list[str]]:
    """Returns settings in which those not given are as recorded in the run; and a message.

    A given configuration wins.
    """
    settings, recalled = train_record.recall(settings, directory)
    if settings.config:
        own = tuple(f"--{name}" for name in FROM_CONFIG)
        recalled = [argument for argument in recalled if argument.partition("=")[0] not in own]
    file = directory.path / config_file.NAME
    return settings, [f"as in {file}:  {' '.join(recalled)}"] if recalled else []


def _check_settings(settings: TrainSettings) -> None:
    """Checks that the given settings apply to a trial.

    Raises:
      UsageError: some do not; all are reported.
    """
    faults = [
        f"--{name} is for a problem, and this is a trial: leave it out."
        for name in _OF_PROBLEMS
        if settings.is_changed(name)
    ]
    if settings.schedule not in SCHEDULES:
        faults.append(
            f"--schedule={settings.schedule} is for a problem; of a trial: {', '.join(SCHEDULES)}."
        )
    if not settings.output_dir and not settings.test_mode:
        faults.append(
            f"missing flags:\n  --output_dir=...  {settings.declared()['output_dir'].meaning}"
        )
    processes = train_record.processes()
    if settings.global_batch_size and not settings.trains:
        faults.append(f"--global_batch_size is for training, not --schedule={settings.schedule}.")
    if settings.test_mode and processes > 1:
        faults.append("--test_mode looks at one process: run it without torchrun.")
    if faults:
        raise UsageError("\n".join(faults))


def _record(settings: TrainSettings, directory: RunDirectory) -> tuple[RunRecord, ExperimentConfig]:
    """Returns the record of the run and the experiment, from settings and the run directory."""
    known = RunRecord.read(directory.path) if directory.exists else None
    changes = parse_changes(settings.hparams, list(settings.hp_))
    if settings.config:
        config = ExperimentConfig.read(Path(settings.config))
    elif known:
        config = ExperimentConfig.from_dict(known.config, source=str(directory.path / NAME))
    else:
        config = ExperimentConfig.from_dict({})
    before = known.hparams if known else {}
    if not settings.config:
        changes = {**by_name(config.hyperparameters, before), **changes}
    values = chosen_values(config.hyperparameters, changes, before)
    spec = settings.trial or (known.trial if known else "")
    if settings.trial and config.trial_class and ":" not in Path(spec).name:
        spec += f":{_class_of(config.trial_class, Path(spec))}"
    if known and not settings.trial:
        open_code(directory.path, directory.task())
        spec = place_of_code(spec, directory.path, known.module_file)
    if known and not (settings.trial and settings.config):
        check_functions(spec, directory.path, config.functions)
    spec = _absolute(spec)
    record = RunRecord(
        trial=spec,
        config=config.written,
        hparams=values,
        version=t2t_torch.__version__,
        module_file=module_file_of(spec),
    )
    if known:
        directory.changes = list(known.changes(record))
        for change in directory.changes:
            message(f"changed since the checkpoint:  {change}")
    return record, config


def _class_of(entrypoint: str, place: Path) -> str:
    """Returns the class of an entrypoint whose module is in the folder of the trial.

    Raises:
      ConfigError: there is no such module, or the entrypoint names no class.
    """
    module, colon, name = entrypoint.partition(":")
    if not (colon and module and name):
        raise ConfigError(
            f"entrypoint: {entrypoint!r} names no class of a module. Write module:Class, such as "
            "model_def:MyTrial, or leave it out."
        )
    if not place.exists():  # a module's name, which stands for itself
        return name
    folder = (place if place.is_dir() else place.parent).resolve()
    parts = module.split(".")
    below = [folder.joinpath(*parts)]
    if parts[0] == folder.name:
        below.append(folder.parent.joinpath(*parts))
    if not any(one.with_name(f"{one.name}.py").is_file() or one.is_dir() for one in below):
        files = ", ".join(sorted(path.name for path in folder.glob("*.py")))
        raise ConfigError(
            f"entrypoint: {entrypoint!r}, and {folder} has no {parts[-1]}.py of that place. It "
            f"has: {files or 'no Python file'}. Name the module that defines {name}."
        )
    return name


def _absolute(spec: str) -> str:
    """Returns the absolute path of a trial; module names are unchanged."""
    place, colon, name = spec.partition(":")
    return f"{Path(place).resolve()}{colon}{name}" if Path(place).exists() else spec


def _with_restarts(
    settings: TrainSettings,
    directory: RunDirectory,
    record: RunRecord,
    config: ExperimentConfig,
    callbacks: Sequence[Hook],
    stop: StopRequest,
) -> int:
    """Trains; after an error in the trial's code, restarts from the newest checkpoint.

    The run ends if the same error occurs at the same step, or if a device has failed, which this
    process cannot use any more.  Under torchrun, torchrun restarts all processes.
    """
    most = config.max_restarts if settings.max_restarts is None else settings.max_restarts
    if train_record.processes() > 1 or not settings.trains:
        most = 0
    before, restarts = "", 0
    while True:
        estimators: list[Estimator] = []
        try:
            return _train(settings, directory, record, config, callbacks, stop, estimators)
        except T2TError:
            raise
        except Exception as error:
            step = estimators[0].state.step if estimators else 0
            failure = f"step {step}: {type(error).__name__}: {error}"
            if restarts >= most or failure == before or _is_of_device(error):
                raise
            message(traceback.format_exc().rstrip())
            before, restarts = failure, restarts + 1
            message(f"restart {restarts} of {most} (max_restarts), from the newest checkpoint")
        estimators.clear()
        gc.collect()


def _is_of_device(error: Exception) -> bool:
    """Returns True if an accelerator failed: this process cannot use it any more."""
    import torch

    kind = getattr(torch, "AcceleratorError", None)  # of torch 2.8 and later
    return kind is not None and isinstance(error, kind)


def _train(
    settings: TrainSettings,
    directory: RunDirectory,
    record: RunRecord,
    config: ExperimentConfig,
    callbacks: Sequence[Hook],
    stop: StopRequest,
    made: list[Estimator],
) -> int:
    # torch takes seconds to import: everything before is answered without it.
    from t2t_torch.distributed.precision import warn_if_slow
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Experiment, chosen_hooks
    from t2t_torch.trial.preparation import prepare

    with train_record.training(settings, directory, stop) as world:
        seed = _seed(settings, directory, config)
        timeout = settings.download_timeout
        task = prepare(record.trial, config, record.hparams, world, seed=seed, timeout_s=timeout)
        settings, run_config = run_config_of(settings, task, config, directory, world)
        if "warm_start_from" in settings.given:
            train_record.check_warm_start(settings, directory)
        if not directory.has_checkpoints:  # checkpoints contain the seed
            run_config = run_config.replace(random_seed=seed)
        with world.leader_first() as leads:
            if leads and settings.trains:
                _claim(settings, directory, record, task, run_config, seed)
        if world.leads:  # sizes of a layer, as those of the trial's own network are unknown
            warn_if_slow(task.hparams.replace(batch_size=1024, hidden_size=256), world.device)
        hooks = [*callbacks, *chosen_hooks(run_config, task.hparams)]
        with Estimator(
            task, directory, run_config, world=world, stop=stop, hooks=hooks
        ) as estimator:
            made.append(estimator)
            if settings.schedule in _IN_TURNS:
                estimator.begin()
                if not estimator.state.step:
                    _validate_first(estimator, config)
            Experiment(estimator).run(settings.schedule)
        return train_record.report_stop(settings, estimator)


def _validate_first(estimator: Estimator, config: ExperimentConfig) -> None:
    """Validates before the first step if requested; tests validation if it would first run at
    the end.
    """
    from t2t_torch.trial.preparation import smoke_check

    turn, last = estimator.config.local_eval_frequency, estimator.train_steps
    if config.perform_initial_validation:
        estimator.evaluate()
    elif not 0 < turn < last:
        smoke_check(estimator)


def _seed(settings: TrainSettings, directory: RunDirectory, config: ExperimentConfig) -> int:
    """Returns the seed: of the settings, the run, or the experiment, in this order."""
    if settings.random_seed is not None:
        return settings.random_seed
    recorded = config_file.remembered(directory.path, ["random_seed"], TrainSettings)
    return int(recorded.get("random_seed", config.reproducibility.experiment_seed))


def _claim(
    settings: TrainSettings,
    directory: RunDirectory,
    record: RunRecord,
    task: TrialTask,
    config: RunConfig,
    seed: int,
) -> None:
    """Claims the run directory for the trial; its files are written when training starts."""
    recorded = directory.task().usr_dirs if directory.exists else ()
    known = TaskRecord(
        trial=task.definition.trial_class.__name__,
        usr_dirs=recorded_usr_dirs(directory.path, recorded),
        train_steps=config.train_steps,
        version=t2t_torch.__version__,
    )
    known_values = {"train_steps": config.train_steps, "random_seed": seed, "trial": record.trial}
    content = config_file.content_of(
        settings, task.hparams, known_values, processes=train_record.processes()
    )
    del content["hparams"]
    files = {NAME: record.text, config_file.NAME: config_file.written(content)}
    directory.claim_files(known, files)
    for change in keep_code(directory, known, copies_of(task.definition, directory.path)):
        message(f"changed since the checkpoint:  {change}")


def _test(settings: TrainSettings, record: RunRecord, config: ExperimentConfig) -> int:
    """Runs one batch through training and validation, and prints its shapes."""
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.train.random_state import restored_generators
    from t2t_torch.trial.preparation import prepare, tested

    with join_world(use_gpu=settings.worker_gpu > 0) as world, restored_generators():
        requested = settings.random_seed
        seed = config.reproducibility.experiment_seed if requested is None else int(requested)
        task = prepare(
            record.trial,
            config,
            record.hparams,
            world,
            seed=seed,
            timeout_s=settings.download_timeout,
        )
        for line in tested(task, seed=seed, device=world.device):
            output(line)
    return 0
