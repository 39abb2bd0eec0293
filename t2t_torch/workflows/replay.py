"""Replay: steps of a run computed again, and compared with the digests that the run logged."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import errors, reporter, trust
from t2t_torch.settings import hp, hp_path, require
from t2t_torch.workflows import config_file, context, run_kind, train_record

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.digests import Record
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.run_config import RunConfig


class ReplaySettings(trust.CodeSettings):
    """Computes steps of a run again, from the nearest checkpoint before them, and compares batch,
    loss, gradients and weights with the digests that it logged (--digest_every of t2t-trainer).

        t2t-replay --output_dir=run --step=150
        t2t-replay --output_dir=run --steps=100:200

    Prints for each logged step that all is equal, or what differs first; then the exit code is 1:
    this machine or that of the run computed wrongly, unless a last line names another reason: other
    settings or data since, hooks, another processor.  The run is not changed, and may train.
    Of a run of several processes:  torchrun --nproc-per-node=2 -m t2t_torch.bin t2t-replay ...
    """

    output_dir: str | None = hp_path("Run directory of t2t-trainer.")
    data_dir: str | None = context.DATA_DIR
    step: int = hp(0, "Logged step that is compared; 0: those of --steps.", low=0)
    steps: str = hp("", "First and last step of a range, as 100:200; all that it logged are.")
    worker_gpu: int = hp(1, "Device: 1: a GPU if available; 0: the CPU.", low=0, high=1)
    threads: str = hp("auto", "Threads of a CPU; auto: those of the run.")


@trust.workflow
def replay(settings: ReplaySettings) -> int:
    """Computes steps again and compares them; returns 1 if one differs, else 0.

    Raises:
      T2TError: the steps were not logged, or cannot be computed again.
    """
    from t2t_torch.distributed.process_group import chosen_threads, join_world
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.random_state import restored_generators
    from t2t_torch.train.run_page import starts_of
    from t2t_torch.workflows.evaluate import EvaluateSettings
    from t2t_torch.workflows.train_settings import REMEMBERED, TrainSettings

    require(settings, "output_dir")
    run = str(settings.output_dir)
    directory = RunDirectory(run)
    record = directory.task()
    kind = run_kind.kind_of(directory.path)
    names = [*REMEMBERED, *train_record.OF_A_BEGINNING]
    recorded = config_file.remembered(directory.path, names, TrainSettings)
    wanted = _wanted(settings, directory.path, TrainSettings(**recorded).run_config(0))
    starts = starts_of(directory.path)
    before = [one for one in starts if one["step"] < min(wanted)]
    start: dict[str, Any] = before[-1] if before else {}  # of these steps
    evaluated = kind.with_data(EvaluateSettings(output_dir=run, data_dir=settings.data_dir))
    with (
        join_world(use_gpu=settings.worker_gpu > 0) as world,
        chosen_threads(settings.threads, start.get("threads", 0)),
        restored_generators(),
        _copy(directory, min(wanted), world) as copy,
    ):
        task: Any = kind.task(evaluated, directory, world)
        steps = start.get("train_steps", 0) or record.train_steps
        config = TrainSettings(**recorded).run_config(steps)
        with Estimator(task, copy, config, world=world, reports=False) as estimator:
            return _compare(estimator, wanted, starts, directory.path)


def _wanted(settings: ReplaySettings, run: Path, config: RunConfig) -> dict[int, Record]:
    """Returns the logged digests of the requested steps.

    Raises:
      UsageError: none of them was logged, or they were computed by another number of processes.
    """
    from t2t_torch.train.digests import is_comparable, read_digests

    logged = read_digests(run)
    limits = re.fullmatch(r"(\d+):(\d+)", settings.steps or f"{settings.step}:{settings.step}")
    if limits is None or bool(settings.step) == bool(settings.steps):
        raise errors.UsageError("Give the step to compute again, --step=150, or --steps=100:200.")
    first, last = map(int, limits.groups())
    wanted = {step: logged[step] for step in sorted(logged) if first <= step <= last}
    if not wanted:
        nearest = sorted(logged, key=lambda step: abs(step - first))
        near = errors.listed(nearest, 3) or "no step"
        raise errors.UsageError(
            f"'{run}' has no digests of {first} to {last}. It has those of {near}; t2t-trainer "
            "--digest_every=50 logs them."
        )
    for step, record in wanted.items():
        if not is_comparable(record, config, train_record.processes()):
            count = record["processes"]
            start = f"torchrun --nproc-per-node={count} -m t2t_torch.bin " if count > 1 else ""
            flags = " ".join(settings.arguments(settings.given))
            raise errors.UsageError(
                f"step {step} was computed by {count} processes; give as many:  "
                f"{start}t2t-replay {flags}"
            )
    return wanted


@contextlib.contextmanager
def _copy(directory: RunDirectory, step: int, world: World) -> Iterator[RunDirectory]:
    """Yields a temporary run directory of each process with the nearest checkpoint before a step,
    the same in all; without any if there is none: then the run begins again.
    """
    from t2t_torch.run.checkpoint_directory import CheckpointDirectory
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.pace import NAME

    with tempfile.TemporaryDirectory() as path:
        checkpoints = CheckpointDirectory(directory.path)
        before = [one.step for one in checkpoints.list() if one.step < step][-1:]
        files = [NAME]
        for one in map(checkpoints.at, world.gather(before)[0]):
            Path(path, one.path.name).symlink_to(one.path.resolve())
            files += one.manifest().get("vocabularies", {})
        there = [name for name in files if (directory.path / name).exists()]
        RunDirectory(path).copy_vocabularies(there, directory.path)
        yield RunDirectory(path)


def _compare(
    estimator: Estimator, wanted: Mapping[int, Record], starts: list[dict[str, Any]], path: Path
) -> int:
    """Trains to the last of some logged steps, or the first that differs; returns the exit code."""
    from t2t_torch.run.metrics_file import MetricsFile
    from t2t_torch.train.digests import StepDigests, difference
    from t2t_torch.train.estimator import train_step

    run, world = estimator.begin(), estimator.world
    run.digests = digests = StepDigests(run, world, wanted.__contains__, checks=False)
    evaluations: dict[int, dict[str, Any]] = {}
    for report in MetricsFile(path).read():
        if not report["split"].startswith("train"):
            evaluations.setdefault(report["step"], {}).update(report)
    run.network.train()
    first = equal = estimator.state.step
    say = reporter.output if world.leads else str
    while estimator.state.step < max(wanted):
        _take_evaluation(estimator, evaluations.get(estimator.state.step))
        state = estimator.state
        if run.pace.is_due(state):
            run.pace.replan(state, world)
        train_step(run, state, world, run.next_batches())
        if digests.record is None:
            continue
        differs = difference(wanted[state.step], digests.record, digests.names)
        say(f"step {state.step}: {f'differs, {differs}' if differs else 'equal'}")
        if differs:
            reasons = "; ".join(_reasons(estimator, starts, first, state.step))
            fault = "a bit flipped, or this machine or that of the run computes wrongly"
            say(f"It arose after step {equal}, up to step {state.step}: {reasons or fault}")
            return 1
        equal = state.step
    say(f"computed again from step {first}: the digests of {len(wanted)} logged step(s) are equal")
    return 0


def _reasons(
    estimator: Estimator, starts: list[dict[str, Any]], first: int, last: int
) -> Iterator[str]:
    """Yields why steps may differ on good machines.

    Args:
      estimator: what computed them again, with the newest settings of the run.
      starts: the starts of the run.
      first: step of the checkpoint.
      last: last step that was computed again.
    """
    from t2t_torch.train.run_page import machine

    if estimator.config.hooks:
        yield f"perhaps the run's hooks, left out here: {errors.listed(estimator.config.hooks)}"
    for start in starts:
        if start["step"] > first and start.get("changes"):
            changes = errors.listed(start["changes"])
            yield f"perhaps settings that changed at step {start['step']}: {changes}"
    here = machine(estimator.world.device) | {"train_steps": estimator.train_steps}
    if not estimator.config.deterministic_world:
        here["processes"] = estimator.world.size
    before = [one for one in starts if one["step"] <= first][-1:]
    for start in [*before, *(one for one in starts if first < one["step"] < last)]:
        if others := [f"{n} {start[n]}" for n, one in here.items() if start.get(n, one) != one]:
            yield f"perhaps the start at step {start['step']}, which had {errors.listed(others)}"


def _take_evaluation(estimator: Estimator, report: Mapping[str, Any] | None) -> None:
    """Applies the rules for the monitored metric to an evaluation that the run reported."""
    from t2t_torch.metrics.metric import lower_is_better
    from t2t_torch.train.stopping import Watched, full_name

    config = estimator.config
    if report is None or estimator.state.evaluated >= estimator.state.step:
        return
    name = full_name(config.eval_early_stopping_metric, report)
    less = config.eval_early_stopping_metric_minimize
    watched = Watched(name, lower_is_better(name) if less is None else less)
    value, loss = (math.nan if v is None else v for v in (report[name], report.get("loss")))
    estimator.judge(watched, value, loss)
    estimator.anneal()
