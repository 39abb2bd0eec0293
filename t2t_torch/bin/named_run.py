"""What the flags of `t2t-trainer` name: the run, its hyperparameters, and its JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin import config_file
from t2t_torch.bin import flags as shared
from t2t_torch.bin.trainer_flags import FLAGS, REMEMBERED, flag, given, trains
from t2t_torch.errors import CheckpointError, RegistryError, UsageError
from t2t_torch.train.run_config import DEFAULT_SEED

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_directory import RunDirectory, TaskRecord


OF_TRIALS = ("test_mode", "global_batch_size", "max_restarts", "download_timeout")
"""Flags that only a trial reads."""

OF_A_BEGINNING = ("random_seed", "warm_start_from", "warm_start_patterns")
"""Flags that only a run without a checkpoint reads."""


def recall(directory: RunDirectory) -> list[str]:
    """Gives flags that are silent the values with which the run was begun; returns which.

    What only reads takes over what says which checkpoint is best.  A run that was killed before its
    first checkpoint begins again, with the same seed and the same initial weights.
    """
    names = list(REMEMBERED) if trains() else [n for n in REMEMBERED if n.startswith("eval_early")]
    if trains() and not directory.has_checkpoints:
        names += OF_A_BEGINNING
    if given("train_steps"):
        names = [name for name in names if name != "train_epochs"]
    found = config_file.remembered(directory.path, names, FLAGS)
    changed = []
    for name, value in found.items():
        if not given(name) and value != flag(name):
            FLAGS[name].value = value
            changed.append(config_file.argument(FLAGS, name, value))
    return changed


def record(directory: RunDirectory) -> TaskRecord:
    """Returns what the flags name, and where they are silent, what the run directory holds.

    Raises:
      CheckpointError: the run that is there is one of another problem or model.
      UsageError: flags are missing, or a folder of the user's is gone.
    """
    from t2t_torch.train.run_directory import TaskRecord

    names = {name: flag(name) for name in ("problem", "model", "hparams_set")}
    steps = 0
    if directory.exists or directory.has_checkpoints:
        known = directory.task()
        steps = known.train_steps
        names = {name: asked or getattr(known, name) for name, asked in names.items()}
        open_usr_dirs(known, names)
    else:
        shared.require(FLAGS, *names)
    names["problem"] = registry.problem(names["problem"]).full_name
    if not steps or given("train_steps"):
        steps = flag("train_steps")
    if flag("train_epochs"):
        steps = 0  # known when the data is
    named = TaskRecord(
        **names,
        usr_dirs=tuple(registry.usr_dirs()),
        train_steps=steps,
        version=t2t_torch.__version__,
    )
    if directory.exists:
        directory.check_is_of(named)
    return named


def open_usr_dirs(known: TaskRecord, names: Mapping[str, str]) -> None:
    """Imports the folders that a run was begun with; one that was moved may be given anew.

    Raises:
      UsageError: one is gone, and none that is given declares what is named.
    """
    gone = [folder for folder in known.usr_dirs if not Path(folder).is_dir()]
    new = [folder for folder in registry.usr_dirs() if folder not in known.usr_dirs]
    for folder in known.usr_dirs:
        if folder not in gone and folder not in registry.usr_dirs():
            registry.import_usr_dir(folder)
    if not gone:
        return
    try:
        registry.problem(names["problem"])
        registry.model(names["model"])
    except RegistryError as error:
        raise UsageError(
            f"the run was begun with --t2t_usr_dir={gone[0]}, which is not there any more: {error} "
            "Say where it is now with --t2t_usr_dir."
        ) from error
    instead = f"; {', '.join(new)} is used" if new else " and is not needed"
    print(f"--t2t_usr_dir={', '.join(gone)} is not there any more{instead}", file=sys.stderr)


def hparams(directory: RunDirectory, named: TaskRecord) -> HParams:
    """Returns the named set, or that of the run if none is named, changed as the flags say.

    First comes the object of `--config`, then `--hparams`, then each `--hp` and `--teacher`.  What
    only evaluates takes the run's if its own set is named, too.
    """
    own = not flag("hparams_set")
    if directory.exists and not own and not trains():
        own = flag("hparams_set") == directory.task().hparams_set
    if named.hparams_set:
        # The set's class: the model's would have to be imported. They are checked to fit.
        known = registry.hparams(named.hparams_set)
        before = directory.hparams(type(known)) if directory.exists and own else None
    else:  # a run that was begun in Python
        known = before = directory.hparams(registry.model(named.model).HParams)
    resolved = changed(known if before is None else before)
    if trains():
        from t2t_torch.optim.settings import check_settings

        check_settings(resolved, before)
    return resolved


def changed(known: HParams) -> HParams:
    """Returns hyperparameters changed as the flags say."""
    if flag("config"):
        known = config_file.RunJson.read(Path(flag("config")), FLAGS).applied(known)
    known = known.parse(flag("hparams"))
    for item in flag("hp"):
        known = known.parse(item, f"--hp_{item.partition('=')[0]}")
    if flag("teacher"):
        named = ",".join(flag("teacher"))
        named = f"[{named}]" if len(flag("teacher")) > 1 else named
        known = known.parse(f"distill_from={named}", "--teacher")
    return known


def config_of(directory: RunDirectory, named: TaskRecord, resolved: HParams) -> dict[str, Any]:
    """Returns the JSON that reproduces what the flags name."""
    seed = flag("random_seed")
    if seed is None:
        begun = config_file.remembered(directory.path, ["random_seed"], FLAGS)
        seed = begun.get("random_seed", DEFAULT_SEED)
    known = {
        "problem": named.problem,
        "model": named.model,
        "hparams_set": named.hparams_set,
        "train_steps": named.train_steps or None,
        "train_epochs": flag("train_epochs") or None,
        "random_seed": seed,
        "t2t_usr_dir": list(named.usr_dirs),
        **dict.fromkeys(OF_TRIALS),
    }
    return config_file.content_of(FLAGS, resolved, known, processes=processes())


def processes() -> int:
    """Returns how many processes train together, as torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_warm_start(directory: RunDirectory) -> None:
    """Checks that `--warm_start_from` is not given to a run that was begun without it.

    Raises:
      CheckpointError: it was; or with another one.
    """
    asked = flag("warm_start_from")
    if not asked or not directory.has_checkpoints:
        return
    name = "warm_start_from"
    begun = config_file.remembered(directory.path, [name], FLAGS).get(name, "")
    if Path(asked).absolute() != Path(begun or "/").absolute():
        raise CheckpointError(
            f"'{directory.path}' has checkpoints, and was begun "
            + (f"with --warm_start_from={begun}" if begun else "without --warm_start_from")
            + f", not with {asked}: weights are taken over at the beginning alone. Leave it out to "
            "go on, or train in another --output_dir."
        )


def exit_code(estimator: Estimator) -> int:
    """Returns the command's exit code; after a signal it says where the run goes on."""
    if not estimator.signal:
        return 0
    if estimator.world.leads and trains():
        _tell_saved(estimator)
    code: int = flag("signal_exit_code") or 128 + estimator.signal
    return code


def _tell_saved(estimator: Estimator) -> None:
    """Says after a signal where the run goes on."""
    steps = [checkpoint.step for checkpoint in estimator.checkpoints.list()]
    if steps:
        done = "training has finished" if estimator.is_done else "run the same command to go on"
        print(f"saved {estimator.directory.path}/ckpt-{max(steps)}; {done}", file=sys.stderr)
