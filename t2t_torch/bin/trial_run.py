"""`t2t-trainer --trial=...`: training of a user's `PyTorchTrial`."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch.bin import config_file, named_run
from t2t_torch.bin.trainer_flags import FLAGS, chosen, flag, given, run_config, trains
from t2t_torch.errors import ConfigError, T2TError, UsageError
from t2t_torch.train.run_code import keep_code, open_code, recorded_usr_dirs
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.train.stopping import EarlyExit
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.config import ExperimentConfig
from t2t_torch.trial.pytorch_trial import InvalidHP
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

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Hook
    from t2t_torch.trial.config import Scale
    from t2t_torch.trial.task import TrialTask


# What an experiment's configuration says in the terms of `t2t-trainer`'s flags.


FROM_CONFIG = (
    *("local_eval_frequency", "save_checkpoints_steps", "keep_checkpoint_max", "eval_steps"),
    *("keep_checkpoint_best", "eval_early_stopping_metric", "eval_early_stopping_metric_minimize"),
)
"""Flags whose values a configuration has, where the command does not."""


def messages_of(config: ExperimentConfig) -> list[str]:
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
    lines += [*_retention_messages(config), *_process_messages(config)]
    if config.perform_initial_validation and flag("schedule") == "train":
        lines.append("perform_initial_validation:  --schedule=train evaluates nothing")
    wanted = config.optimizations
    if wanted.mixed_precision != "O0" and wanted.precision is None:
        lines.append(
            f"optimizations.mixed_precision {wanted.mixed_precision}:  O1, O2 and O3 are one "
            "here: products in float16 (torch.autocast), weights in float32, the loss scaled"
        )
    return lines


def _process_messages(config: ExperimentConfig) -> list[str]:
    """Returns a message if the number of processes differs from the requested one."""
    slots, processes = config.resources.slots_per_trial, named_run.processes()
    wanted = config.resources
    if (wanted.optimized_parallel or wanted.distributed) and processes == 1 and trains():
        name = "optimized_parallel" if wanted.optimized_parallel else "distributed"
        count = slots if slots > 1 else "N"
        return [
            f"resources.{name} true:  here it is 1 process; several, one for each GPU, by torchrun "
            f"--nproc-per-node={count} -m t2t_torch.bin.trainer ..."
        ]
    requested = "slots_per_trial" in (config.written.get("resources") or {})
    if not requested or slots == processes or not trains():
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
    task: TrialTask, config: ExperimentConfig, directory: RunDirectory, world: World
) -> RunConfig:
    """Returns the settings of the run, from flags and the experiment; flags win.

    Args:
      task: task of the trial; `--global_batch_size` changes its batches per step.
      config: the experiment.
      directory: the run directory; a run resumed without a configuration keeps its settings.
      world: the processes.

    Raises:
      ConfigError: the length of training is unknown.
      UsageError: no whole number of batches makes `--global_batch_size`.
    """
    source = task.train_batches(seed=0, start=0, rank=world.rank, world_size=world.size)
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
    goes_on = (directory.path / config_file.NAME).exists() and not flag("config")
    values = {} if goes_on else _from_config(config, scale)
    if config.searcher.source_checkpoint:
        values["warm_start_from"] = config.searcher.source_checkpoint
    values["train_steps"] = _steps(config, scale, directory, goes_on=goes_on)
    for name, value in values.items():
        if name == "train_steps" or not given(name):
            FLAGS[name].value = value
    _watch(task)
    return run_config(int(flag("train_steps")))


def _watch(task: TrialTask) -> None:
    """Makes evaluations fail if they lack the monitored metric and something depends on it.

    The default of the flag is not a metric of most trials, so otherwise it is ignored.
    """
    name = "eval_early_stopping_metric"
    waits = flag("eval_early_stopping_steps") or flag("keep_checkpoint_best")
    if given(name) or flag(name) != FLAGS[name].default or waits:
        task.watch(flag(name), f"--{name}")


def _steps(
    config: ExperimentConfig, scale: Scale, directory: RunDirectory, *, goes_on: bool
) -> int:
    """Returns the steps at which the run ends: from the flag, the run or the experiment.

    Raises:
      ConfigError: none of them sets it.
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


def _from_config(config: ExperimentConfig, scale: Scale) -> dict[str, Any]:
    """Returns the values of the flags in `FROM_CONFIG` that an experiment sets."""
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


def _accumulate(records_per_batch: float, world: World) -> int:
    """Returns the batches per step and process that make `--global_batch_size`.

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

INVALID_HP = 3
"""Exit code of a trial that says that its hyperparameters cannot be trained."""


def is_requested() -> bool:
    """Returns True if the flags name a trial, or the run of one."""
    if flag("trial"):
        return True
    directory = RunDirectory(flag("output_dir") or "")
    return bool(flag("output_dir")) and directory.exists and bool(directory.task().trial)


def run(early: EarlyExit | None, callbacks: Sequence[Hook] = ()) -> int:
    """Runs the command; returns its exit code."""
    try:
        return _run(early, callbacks)
    except InvalidHP as error:
        print(f"error: InvalidHP: {error}", file=sys.stderr)
        return INVALID_HP


def _run(early: EarlyExit | None, callbacks: Sequence[Hook]) -> int:
    _check_flags()
    directory = RunDirectory(flag("output_dir") or _NOWHERE)
    lines = _recall(directory)
    record, config = _named(directory)
    if os.environ.get("RANK", "0") == "0":
        for line in [*lines, *messages_of(config)]:
            print(line, file=sys.stderr)
    pytorch_trial.name_run(Path(flag("output_dir")) if flag("output_dir") else None)
    if flag("test_mode"):
        return _test(record, config)
    return _with_restarts(directory, record, config, early, callbacks)


def _recall(directory: RunDirectory) -> list[str]:
    """Sets flags that were not given to the values recorded in the run; returns a message.

    A given configuration wins.
    """
    recalled = named_run.recall(directory)
    if flag("config"):
        own = tuple(f"--{name}" for name in FROM_CONFIG)
        recalled = [argument for argument in recalled if argument.partition("=")[0] not in own]
    file = directory.path / config_file.NAME
    return [f"as in {file}:  {' '.join(recalled)}"] if recalled else []


def _check_flags() -> None:
    """Checks that the given flags apply to a trial.

    Raises:
      UsageError: some do not; all are reported.
    """
    faults = [
        f"--{name} is for a problem, and this is a trial: leave it out."
        for name in _OF_PROBLEMS
        if chosen(name)
    ]
    if flag("schedule") not in SCHEDULES:
        faults.append(
            f"--schedule={flag('schedule')} is for a problem; of a trial: {', '.join(SCHEDULES)}."
        )
    if not flag("output_dir") and not flag("test_mode"):
        faults.append(f"missing flags:\n  --output_dir=...  {FLAGS['output_dir'].help}")
    processes = named_run.processes()
    if flag("global_batch_size") and not trains():
        faults.append(f"--global_batch_size is for training, not --schedule={flag('schedule')}.")
    if flag("test_mode") and processes > 1:
        faults.append("--test_mode looks at one process: run it without torchrun.")
    if faults:
        raise UsageError("\n".join(faults))


def _named(directory: RunDirectory) -> tuple[RunRecord, ExperimentConfig]:
    """Returns the record of the run and the experiment, from flags and the run directory."""
    known = RunRecord.read(directory.path) if directory.exists else None
    changes = parse_changes(flag("hparams"), flag("hp"))
    if flag("config"):
        config = ExperimentConfig.read(Path(flag("config")))
    elif known:
        config = ExperimentConfig.from_dict(known.config, source=str(directory.path / NAME))
    else:
        config = ExperimentConfig.from_dict({})
    before = known.hparams if known else {}
    if not flag("config"):
        changes = {**by_name(config.hyperparameters, before), **changes}
    values = chosen_values(config.hyperparameters, changes, before)
    spec = flag("trial") or (known.trial if known else "")
    if flag("trial") and config.trial_class and ":" not in Path(spec).name:
        spec += f":{_class_of(config.trial_class, Path(spec))}"
    if known and not flag("trial"):
        open_code(directory.path, directory.task())
        spec = place_of_code(spec, directory.path, known.module_file)
    if known and not (flag("trial") and flag("config")):
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
            print(f"changed since the checkpoint:  {change}", file=sys.stderr)
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
    directory: RunDirectory,
    record: RunRecord,
    config: ExperimentConfig,
    early: EarlyExit | None,
    callbacks: Sequence[Hook],
) -> int:
    """Trains; after an error in the trial's code, restarts from the newest checkpoint.

    The run ends if the same error occurs at the same step, or if a device has failed, which this
    process cannot use any more.  Under torchrun, torchrun restarts all processes.
    """
    most = config.max_restarts if flag("max_restarts") is None else flag("max_restarts")
    if named_run.processes() > 1 or not trains():
        most = 0
    before, restarts = "", 0
    while True:
        estimators: list[Estimator] = []
        try:
            return _train(directory, record, config, early, callbacks, estimators)
        except T2TError:
            raise
        except Exception as error:
            step = estimators[0].state.step if estimators else 0
            failure = f"step {step}: {type(error).__name__}: {error}"
            if restarts >= most or failure == before or _is_of_device(error):
                raise
            traceback.print_exc()
            before, restarts = failure, restarts + 1
            print(
                f"restart {restarts} of {most} (max_restarts), from the newest checkpoint",
                file=sys.stderr,
                flush=True,
            )
        estimators.clear()
        gc.collect()


def _is_of_device(error: Exception) -> bool:
    """Returns True if an accelerator failed: this process cannot use it any more."""
    import torch

    kind = getattr(torch, "AcceleratorError", None)  # of torch 2.8 and later
    return kind is not None and isinstance(error, kind)


def _train(
    directory: RunDirectory,
    record: RunRecord,
    config: ExperimentConfig,
    early: EarlyExit | None,
    callbacks: Sequence[Hook],
    made: list[Estimator],
) -> int:
    # torch takes seconds to import: everything before is answered without it.
    from t2t_torch.distributed.precision import warn_if_slow
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Experiment, chosen_hooks
    from t2t_torch.trial.preparation import prepare

    with named_run.training(directory, early) as (world, stop):
        seed = _seed(directory, config)
        task = prepare(record.trial, config, record.hparams, world, seed=seed, timeout_s=_timeout())
        settings = run_config_of(task, config, directory, world)
        if given("warm_start_from"):
            named_run.check_warm_start(directory)
        if not directory.has_checkpoints:  # checkpoints contain the seed
            settings = settings.replace(random_seed=seed)
        with world.leader_first() as leads:
            if leads and trains():
                _claim(directory, record, task, settings, seed)
        if world.leads:  # sizes of a layer, as those of the trial's own network are unknown
            warn_if_slow(task.hparams.replace(batch_size=1024, hidden_size=256), world.device)
        hooks = [*callbacks, *chosen_hooks(settings, task.hparams)]
        with Estimator(task, directory, settings, world=world, stop=stop, hooks=hooks) as estimator:
            made.append(estimator)
            _run_schedule(estimator, Experiment(estimator), config)
        return named_run.exit_code(estimator)


def _run_schedule(estimator: Estimator, experiment: Any, config: ExperimentConfig) -> None:
    if flag("schedule") in _IN_TURNS:
        estimator.begin()
        if not estimator.state.step:
            _validate_first(estimator, config)
    experiment.run(flag("schedule"))


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


def _timeout() -> float:
    return float(flag("download_timeout"))


def _seed(directory: RunDirectory, config: ExperimentConfig) -> int:
    """Returns the seed: of the flag, the run, or the experiment, in this order."""
    if flag("random_seed") is not None:
        return int(flag("random_seed"))
    recorded = config_file.remembered(directory.path, ["random_seed"], FLAGS)
    return int(recorded.get("random_seed", config.reproducibility.experiment_seed))


def _claim(
    directory: RunDirectory, record: RunRecord, task: TrialTask, config: RunConfig, seed: int
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
    settings = config_file.content_of(
        FLAGS, task.hparams, known_values, processes=named_run.processes()
    )
    del settings["hparams"]
    files = {NAME: record.text, config_file.NAME: config_file.written(settings)}
    directory.claim_files(known, files)
    for change in keep_code(directory, known, copies_of(task.definition, directory.path)):
        print(f"changed since the checkpoint:  {change}", file=sys.stderr)


def _test(record: RunRecord, config: ExperimentConfig) -> int:
    """Runs one batch through training and validation, and prints its shapes."""
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.trial.preparation import prepare, tested

    with join_world(use_gpu=flag("worker_gpu") > 0) as world:
        requested = flag("random_seed")
        seed = config.reproducibility.experiment_seed if requested is None else int(requested)
        task = prepare(record.trial, config, record.hparams, world, seed=seed, timeout_s=_timeout())
        for line in tested(task, seed=seed, device=world.device):
            print(line, flush=True)
    return 0
