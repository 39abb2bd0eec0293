"""The record, hyperparameters and `config.json` of the run that settings select."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch import registry
from t2t_torch.errors import CheckpointError, RegistryError, UsageError
from t2t_torch.reporter import message
from t2t_torch.settings import require
from t2t_torch.train.recommendation import AUTO
from t2t_torch.train.recommendation import recommend as recommended_training
from t2t_torch.train.run_config import DEFAULT_SEED
from t2t_torch.workflows import config_file
from t2t_torch.workflows.context import RUN_FLAGS
from t2t_torch.workflows.train_settings import OF_TRIALS, REMEMBERED, TrainSettings

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.estimator import Estimator


COMMAND = "t2t-trainer"

OF_A_BEGINNING = ("random_seed", "warm_start_from", "warm_start_patterns")
"""Settings that only a run without a checkpoint reads."""


def recall(settings: TrainSettings, directory: RunDirectory) -> tuple[TrainSettings, list[str]]:
    """Returns settings in which those not given are as recorded in the run; lists the changed ones.

    Schedules that do not train only take the settings of the monitored metric.  A run that was
    killed before its first checkpoint starts again with the same seed and initial weights.
    """
    trains = settings.trains
    names = list(REMEMBERED) if trains else [n for n in REMEMBERED if n.startswith("eval_early")]
    if trains and not directory.has_checkpoints:
        names += OF_A_BEGINNING
    if "train_steps" in settings.given:
        names = [name for name in names if name != "train_epochs"]
    recorded = config_file.remembered(directory.path, names, TrainSettings)
    recalled = settings.with_defaults(**recorded)
    return recalled, recalled.differences(settings)


def recommend(settings: TrainSettings, directory: RunDirectory) -> tuple[TrainSettings, list[str]]:
    """Returns settings without `model=auto` and `hparams_set=auto`; lists the chosen ones.

    A run that exists keeps its own.  Of a new one, settings that were not given become those of the
    recommendation.

    Raises:
      DataError: the data, by which they are chosen, was not generated.
      UsageError: one of the two settings is not `auto`.
    """
    names = ("model", "hparams_set")
    requested = [name for name in names if getattr(settings, name) == AUTO]
    if not requested:
        return settings, []
    requested += [name for name in names if not getattr(settings, name)]  # the other one follows
    if directory.exists:
        return settings.replace(**dict.fromkeys(requested)), []  # the run's own
    if len(requested) != len(names):
        raise UsageError("--model=auto and --hparams_set=auto go together: give both, or neither.")
    require(settings, "problem", "data_dir")
    name = registry.problem(str(settings.problem)).full_name
    recommendation = recommended_training(name, Path(str(settings.data_dir)))
    values = recommendation.settings
    if "train_steps" in settings.given or settings.train_epochs:
        values.pop("train_steps", None)
    if settings.hparams and "hparams" in values:
        given = {one.partition("=")[0] for one in settings.hparams.split(",")}
        others = [one for one in values["hparams"].split(",") if one.partition("=")[0] not in given]
        values["hparams"] = ",".join([*others, settings.hparams])
    named = {"model": recommendation.model, "hparams_set": recommendation.hparams_set}
    kept = settings.given - {"hparams"}
    chosen = {**named, **{n: value for n, value in values.items() if n not in kept}}
    made = settings.replace(**chosen)
    return made, made.arguments(chosen)


def pretrained_of(settings: TrainSettings) -> str:
    """Returns the folder of a pretrained model that `--hparams` names; "" if it names none."""
    pairs = (one.partition("=") for one in settings.hparams.split(","))
    return {name.strip(): value for name, _, value in pairs}.get("pretrained", "")


def record(settings: TrainSettings, directory: RunDirectory) -> TaskRecord:
    """Returns the record of the run: values of settings, or those of the run directory.

    Raises:
      CheckpointError: the existing run has another problem or model.
      UsageError: settings are missing, or a folder of the user no longer exists.
    """
    from t2t_torch.run.code import recorded_usr_dirs
    from t2t_torch.run.directory import TaskRecord

    names = {name: getattr(settings, name) for name in RUN_FLAGS}
    steps, carried = 0, {}
    usr_dirs: tuple[str, ...] = ()
    if directory.exists or directory.has_checkpoints:
        known = directory.task()
        steps = known.train_steps
        carried = known.model_dump(include={"declaration", "decode_hparams"})
        names = {name: requested or getattr(known, name) for name, requested in names.items()}
        usr_dirs = known.usr_dirs
        open_usr_dirs(directory, known, names)
    else:
        require(settings, *names)
    from t2t_torch.workflows.generate import pretrained_name

    names["problem"] = registry.problem(names["problem"]).full_name
    named_set = names["hparams_set"]
    if named_set and registry.hparams(named_set, names["model"]).reads_pretrained:
        names["problem"] = pretrained_name(names["problem"])
    if not steps or "train_steps" in settings.given:
        steps = settings.train_steps
        named_set = "" if "train_steps" in settings.given else names["hparams_set"]
        if named_set and registry.hparams(named_set, names["model"]).fits:
            steps = 1
    if settings.train_epochs:
        steps = 0  # known when the data is
    named = TaskRecord(
        **names,
        usr_dirs=recorded_usr_dirs(directory.path, usr_dirs),
        train_steps=steps,
        version=t2t_torch.__version__,
        **carried,
    )
    if directory.exists:
        directory.check_is_of(named)
    return named


def open_usr_dirs(directory: RunDirectory, known: TaskRecord, names: Mapping[str, str]) -> None:
    """Opens the code of a run; a folder that was moved may be given again.

    Raises:
      UsageError: a folder no longer exists, and neither the run's copy nor the given folders
        declare its names; or the code comes with the run, which is not trusted.
    """
    from t2t_torch.run.code import open_code

    open_code(directory.path, known)
    missing = [folder for folder in known.usr_dirs if not Path(folder).is_dir()]
    if not missing:
        return
    try:
        registry.problem(names["problem"])
        registry.model(names["model"])
    except RegistryError as error:
        raise UsageError(
            f"the run was started with --t2t_usr_dir={missing[0]}, which is not there any more: "
            f"{error} Say where it is now with --t2t_usr_dir."
        ) from error
    new = [folder for folder in registry.usr_dirs() if folder not in known.usr_dirs]
    instead = f"; {', '.join(new)} is used" if new else " and is not needed"
    message(f"--t2t_usr_dir={', '.join(missing)} is not there any more{instead}")


def hparams(settings: TrainSettings, directory: RunDirectory, named: TaskRecord) -> HParams:
    """Returns the named set, or the hparams of the run if no set is named, changed by the settings.

    Changes are applied in this order: the object of `--config`, `--hparams`, each `--hp`, and
    `--teacher`.  Schedules that do not train use the hparams of the run if its own set is named.
    """
    own = not settings.hparams_set
    if directory.exists and not own and not settings.trains:
        own = settings.hparams_set == directory.task().hparams_set
    if named.hparams_set:
        known = registry.hparams(named.hparams_set, named.model)
        before = directory.hparams(type(known)) if directory.exists and own else None
        before = before and before.with_set_of(known)
    else:  # a run that was started in Python
        known = before = directory.hparams(registry.model(named.model).HParams)
    resolved = changed(settings, known if before is None else before)
    if resolved.unread and leads():
        message(f"model {named.model!r} does not read {resolved.unread}")
    if not settings.trains:
        return resolved
    if settings.warm_start_from and not directory.has_checkpoints:
        resolved = _like_source(settings, resolved)
    from t2t_torch.optim.settings import FITTED, check_settings, fit_warm_up

    recorded = directory.hparams(type(resolved)) if directory.has_checkpoints else None
    if recorded is None:
        resolved = _unfitted(resolved, named)
    steps = named.train_steps or _estimated_steps(settings, named, resolved)
    fitted = fit_warm_up(resolved, steps, recorded)
    check_settings(fitted, before)
    if leads():
        if recorded is None:
            _report_warm_up(settings, resolved, fitted, steps)
        elif steps > (length := directory.task().train_steps) > 0:
            warm_up = "learning_rate_warmup_steps"
            if fitted.provenance[warm_up] == FITTED:
                kept = f"still {getattr(fitted, warm_up):,} steps, as fitted to"
                message(f"warm-up: {kept} --train_steps={length}")
    return fitted


def _like_source(settings: TrainSettings, resolved: HParams) -> HParams:
    """Returns hyperparameters with the values that a warm start's weights were trained with, where
    equal weights would compute something else and no set or flag has chosen a value.

    If patterns select some of the weights, nothing is taken: `warm_start` warns of the values.
    """
    from t2t_torch.hparam import recorded_beside
    from t2t_torch.params import value_text

    source = Path(settings.warm_start_from)
    departing, chosen_by = resolved.departing(recorded_beside(source)), resolved.provenance
    taken = {name: value for name, value in departing.items() if chosen_by[name] == "default"}
    selects = any("->" not in one and one[:1] != "!" for one in settings.warm_start_patterns)
    if selects or not taken:
        return resolved
    if leads():
        values = ", ".join(f"{name}={value_text(value)}" for name, value in taken.items())
        message(f"as in --warm_start_from={source}:  {values}")
    return resolved.replace(**taken).signed("--warm_start_from")


def _unfitted(resolved: HParams, named: TaskRecord) -> HParams:
    """Returns the warm-up of the set instead of one that was fitted to another length."""
    from t2t_torch.optim.settings import FITTED

    fitted = [name for name, source in resolved.provenance.items() if source == FITTED]
    if not fitted or not named.hparams_set:
        return resolved
    declared = registry.hparams(named.hparams_set)
    values = {name: getattr(declared, name) for name in fitted}
    return resolved.replace(**values).signed(named.hparams_set)


def _estimated_steps(settings: TrainSettings, named: TaskRecord, resolved: HParams) -> int:
    """Returns the approximate number of steps of `--train_epochs`; 0: unknown."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.train.recommendation import batches_of_epoch

    problem = registry.problem(named.problem)
    if not settings.train_epochs or not settings.data_dir or problem.mixing_schedule is not None:
        return 0
    data_dir = Path(settings.data_dir)
    if settings.generate_data and not Manifest.path(data_dir, problem.dataset_name).exists():
        return 0
    batches = batches_of_epoch(problem, data_dir, resolved)
    accumulated = resolved.optimizer_multistep_accumulate_steps or 1
    of_step = settings.deterministic_world or accumulated * processes()
    epochs: int = settings.train_epochs
    return max(1, round(epochs * batches / of_step))


def _report_warm_up(
    settings: TrainSettings, requested: HParams, fitted: HParams, train_steps: int
) -> None:
    """Prints that the warm-up was shortened, or that the run ends within it."""
    from t2t_torch.optim.settings import is_read

    steps = fitted.learning_rate_warmup_steps
    if requested.learning_rate_warmup_steps != steps:
        length = "train_epochs" if settings.train_epochs else "train_steps"
        value = settings.train_epochs or train_steps
        message(
            f"warm-up shortened from {requested.learning_rate_warmup_steps:,} to {steps:,} steps, "
            f"for --{length}={value}"
        )
    elif 0 < train_steps <= steps and is_read(fitted, "learning_rate_warmup_steps"):
        message(
            f"warning: the run ends at step {train_steps:,}, within its warm-up of {steps:,} steps "
            "(learning_rate_warmup_steps)"
        )


def changed(settings: TrainSettings, known: HParams) -> HParams:
    """Returns hyperparameters changed by the settings."""
    if settings.config:
        file = config_file.ConfigFile.read(Path(settings.config), TrainSettings, COMMAND)
        known = file.applied(known)
    known = known.parse(settings.hparams)
    for item in settings.hp_:
        known = known.parse(item, f"--hp_{item.partition('=')[0]}")
    if settings.teacher:
        named = ",".join(settings.teacher)
        named = f"[{named}]" if len(settings.teacher) > 1 else named
        known = known.parse(f"distill_from={named}", "--teacher")
    return known


def config_of(
    settings: TrainSettings, directory: RunDirectory, named: TaskRecord, resolved: HParams
) -> dict[str, Any]:
    """Returns the JSON that reproduces the run."""
    seed = settings.random_seed
    if seed is None:
        recorded = config_file.remembered(directory.path, ["random_seed"], TrainSettings)
        seed = recorded.get("random_seed", DEFAULT_SEED)
    known = {
        "problem": named.problem,
        "model": named.model,
        "hparams_set": named.hparams_set,
        "train_steps": named.train_steps or None,
        "train_epochs": settings.train_epochs or None,
        "random_seed": seed,
        "t2t_usr_dir": list(named.usr_dirs),
        **dict.fromkeys(OF_TRIALS),
    }
    return config_file.content_of(settings, resolved, known, processes=processes())


def processes() -> int:
    """Returns the number of training processes: of the caller's process group, or of torchrun."""
    return _rank_and_size()[1]


def leads() -> bool:
    """Returns True in the process that reports."""
    return _rank_and_size()[0] == 0


def _rank_and_size() -> tuple[int, int]:
    group: Any = sys.modules.get("torch.distributed")  # not imported: --help does not need it
    if group is not None and group.is_available() and group.is_initialized():
        return group.get_rank(), group.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def training(
    settings: TrainSettings, directory: RunDirectory, stop: StopRequest
) -> Iterator[World]:
    """Joins the processes and enters the stop request; unlocks the run directory at the end."""
    from t2t_torch.distributed.process_group import chosen_threads, join_world
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.train.random_state import restored_generators
    from t2t_torch.train.run_page import starts_of

    recorded = next((start.get("threads", 0) for start in starts_of(directory.path)[-1:]), 0)
    keep_freed_memory()
    with (
        join_world(
            use_gpu=settings.worker_gpu > 0, exchange_timeout=settings.exchange_timeout
        ) as world,
        chosen_threads(settings.threads, recorded),
        restored_generators(),
        stop,
    ):
        try:
            yield world
        finally:
            directory.unlock()


def check_warm_start(settings: TrainSettings, directory: RunDirectory) -> None:
    """Checks that `--warm_start_from` is not given to a run that started without it.

    Raises:
      CheckpointError: the run started without it, or from another one.
    """
    requested = settings.warm_start_from
    if not requested or not directory.has_checkpoints:
        return
    name = "warm_start_from"
    recorded = config_file.remembered(directory.path, [name], TrainSettings).get(name, "")
    if Path(requested).absolute() != Path(recorded or "/").absolute():
        raise CheckpointError(
            f"'{directory.path}' has checkpoints, and was started "
            + (f"with --warm_start_from={recorded}" if recorded else "without --warm_start_from")
            + f", not with {requested}: weights are taken over at the beginning alone. Leave it "
            "out to resume, or train in another --output_dir."
        )


def report_stop(settings: TrainSettings, estimator: Estimator) -> int:
    """Reports the newest checkpoint after a stop; returns the number of its signal, or 0."""
    reports = estimator.signal and estimator.world.leads and settings.trains
    for newest in estimator.checkpoints.list()[-1:] if reports else ():
        if estimator.is_done:
            message(f"finished at step {newest.step:,}: {newest.path}")
        else:
            message(f"saved {newest.path}; run the same command to resume")
    return estimator.signal
