"""`t2t-trainer --trial=...`: a user's `PyTorchTrial`, trained by a schedule."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch import registry
from t2t_torch.allocator import keep_freed_memory
from t2t_torch.bin import named_run, run_json
from t2t_torch.bin.experiment_flags import FROM_CONFIG, run_config_of, told_of
from t2t_torch.bin.trainer_flags import FLAGS, chosen, flag, given, trains
from t2t_torch.errors import ConfigError, T2TError, UsageError
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.train.stop import EarlyExit, StopRequest
from t2t_torch.trial import context
from t2t_torch.trial.chosen import by_name, chosen_values, parse_changes
from t2t_torch.trial.code_copy import keep_code
from t2t_torch.trial.experiment_config import ExperimentConfig
from t2t_torch.trial.invalid_hp import InvalidHP
from t2t_torch.trial.run_record import NAME, RunRecord

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.trial.task import TrialTask

SCHEDULES = ("continuous_train_and_eval", "train", "evaluate", "continuous_eval", "test")
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


def is_asked() -> bool:
    """Whether the flags name a trial, or a run of one."""
    if flag("trial"):
        return True
    directory = RunDirectory(flag("output_dir") or "")
    return bool(flag("output_dir")) and directory.exists and bool(directory.task().trial)


def run(early: EarlyExit) -> int:
    """Runs the command; returns its exit code."""
    try:
        return _run(early)
    except InvalidHP as error:
        print(f"error: InvalidHP: {error}", file=sys.stderr)
        return INVALID_HP


def _run(early: EarlyExit) -> int:
    _check_flags()
    directory = RunDirectory(flag("output_dir") or _NOWHERE)
    lines = _recall(directory)
    record, config = _named(directory)
    if os.environ.get("RANK", "0") == "0":
        for line in [*lines, *told_of(config)]:
            print(line, file=sys.stderr)
    context.name_run(Path(flag("output_dir")) if flag("output_dir") else None)
    if flag("test_mode"):
        return _test(record, config)
    return _with_restarts(directory, record, config, early)


def _recall(directory: RunDirectory) -> list[str]:
    """Gives flags that are silent the values with which the run was begun; tells of it.

    A configuration that is given anew is stronger.
    """
    recalled = named_run.recall(directory)
    if flag("config"):
        own = tuple(f"--{name}" for name in FROM_CONFIG)
        recalled = [told for told in recalled if told.partition("=")[0] not in own]
    file = directory.path / run_json.NAME
    return [f"as in {file}:  {' '.join(recalled)}"] if recalled else []


def _check_flags() -> None:
    """Checks flags against what a trial is.

    Raises:
      UsageError: one means nothing for a trial; all are told.
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
    """Returns what the flags name, and where they are silent, what the run directory holds."""
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
    spec = _absolute(spec)
    record = RunRecord(
        trial=spec, config=config.written, hparams=values, version=t2t_torch.__version__
    )
    if known:
        for change in known.changes(record):
            print(f"changed since the checkpoint:  {change}", file=sys.stderr)
    return record, config


def _class_of(entrypoint: str, place: Path) -> str:
    """Returns the class that an entrypoint names, of which the trial's folder has the module.

    Raises:
      ConfigError: it has none, or no class is named.
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
    """Returns a trial's place as it is found from everywhere; a module's name stays."""
    place, colon, name = spec.partition(":")
    return f"{Path(place).resolve()}{colon}{name}" if Path(place).exists() else spec


def _with_restarts(
    directory: RunDirectory, record: RunRecord, config: ExperimentConfig, early: EarlyExit
) -> int:
    """Trains; a failure of the trial's own code begins again from the newest checkpoint.

    The same failure at the same step ends the run: it would come again.  So does one of the device,
    which this process cannot use any more.  Under torchrun it is for torchrun to start the
    processes again, all of them.
    """
    most = config.max_restarts if flag("max_restarts") is None else flag("max_restarts")
    if named_run.processes() > 1 or not trains():
        most = 0
    before, restarts = "", 0
    while True:
        estimators: list[Estimator] = []
        try:
            return _train(directory, record, config, early, estimators)
        except T2TError:
            raise
        except Exception as error:
            step = estimators[0].state.step if estimators else 0
            told = f"step {step}: {type(error).__name__}: {error}"
            if restarts >= most or told == before or _is_of_device(error):
                raise
            traceback.print_exc()
            before, restarts = told, restarts + 1
            print(
                f"restart {restarts} of {most} (max_restarts), from the newest checkpoint",
                file=sys.stderr,
                flush=True,
            )
        estimators.clear()
        gc.collect()


def _is_of_device(error: Exception) -> bool:
    """Whether an accelerator has failed: nothing more can be computed there in this process."""
    import torch

    kind = getattr(torch, "AcceleratorError", None)  # of torch 2.8 and later
    return kind is not None and isinstance(error, kind)


def _train(
    directory: RunDirectory,
    record: RunRecord,
    config: ExperimentConfig,
    early: EarlyExit,
    made: list[Estimator],
) -> int:
    # torch takes seconds to import: everything before is answered without it.
    from t2t_torch.compute.distributed import join_world
    from t2t_torch.train.chosen_hooks import chosen_hooks
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Experiment
    from t2t_torch.trial.preparation import prepare

    keep_freed_memory()
    with (
        join_world(use_gpu=flag("worker_gpu") > 0) as world,
        early.gives_way_to(StopRequest()) as stop,
    ):
        try:
            seed = _seed(directory, config)
            task = prepare(
                record.trial, config, record.hparams, world, seed=seed, timeout_s=_timeout()
            )
            told = run_config_of(task, config, directory, world)
            if given("warm_start_from"):
                named_run.check_warm_start(directory)
            if not directory.has_checkpoints:  # those know the seed themselves
                told = dataclasses.replace(told, random_seed=seed)
            with world.leader_first() as leads:
                if leads and trains():
                    _claim(directory, record, task, told, seed)
            hooks = chosen_hooks(told, task.hparams)
            with Estimator(task, directory, told, world=world, stop=stop, hooks=hooks) as estimator:
                made.append(estimator)
                _run_schedule(estimator, Experiment(estimator), config)
            return named_run.exit_code(estimator)
        finally:
            directory.unlock()


def _run_schedule(estimator: Estimator, experiment: Any, config: ExperimentConfig) -> None:
    if flag("schedule") == "continuous_train_and_eval":
        estimator.begin()
        if not estimator.state.step:
            _validate_first(estimator, config)
    experiment.run(flag("schedule"))


def _validate_first(estimator: Estimator, config: ExperimentConfig) -> None:
    """Validates before the first step if asked to; tries it if it would first come at the end."""
    from t2t_torch.trial.rehearsal import rehearse

    turn, last = estimator.config.local_eval_frequency, estimator.train_steps
    if config.perform_initial_validation:
        estimator.evaluate()
    elif not 0 < turn < last:
        rehearse(estimator)


def _timeout() -> float:
    return float(flag("download_timeout"))


def _seed(directory: RunDirectory, config: ExperimentConfig) -> int:
    """Returns the seed: the flag's, the run's, the configuration's, in this order."""
    if flag("random_seed") is not None:
        return int(flag("random_seed"))
    begun = run_json.remembered(directory.path, ["random_seed"], FLAGS)
    return int(begun.get("random_seed", config.reproducibility.experiment_seed))


def _claim(
    directory: RunDirectory, record: RunRecord, task: TrialTask, config: RunConfig, seed: int
) -> None:
    """Makes this the run directory of the trial, as soon as training has begun."""
    known = TaskRecord(
        trial=task.definition.trial_class.__name__,
        usr_dirs=tuple(registry.usr_dirs()),
        train_steps=config.train_steps,
        version=t2t_torch.__version__,
    )
    told = {"train_steps": config.train_steps, "random_seed": seed, "trial": record.trial}
    settings = run_json.content_of(FLAGS, task.hparams, told, processes=named_run.processes())
    del settings["hparams"]
    files = {NAME: record.text, run_json.NAME: run_json.written(settings)}
    directory.claim_files(known, files)
    keep_code(task.definition, directory)


def _test(record: RunRecord, config: ExperimentConfig) -> int:
    """Takes one batch through everything, and prints its shapes."""
    from t2t_torch.compute.distributed import join_world
    from t2t_torch.trial.preparation import prepare
    from t2t_torch.trial.test_mode import tested

    with join_world(use_gpu=flag("worker_gpu") > 0) as world:
        asked = flag("random_seed")
        seed = config.reproducibility.experiment_seed if asked is None else int(asked)
        task = prepare(record.trial, config, record.hparams, world, seed=seed, timeout_s=_timeout())
        for line in tested(task, seed=seed, device=world.device):
            print(line, flush=True)
    return 0
