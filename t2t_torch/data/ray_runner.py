"""A data set made by the tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging
from tqdm import tqdm

from t2t_torch import errors, registry
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.request import Request
from t2t_torch.data.task import Tasks, run_task
from t2t_torch.errors import DataError, T2TError, UsageError, install_extra
from t2t_torch.readers.bad_records import Policy

if TYPE_CHECKING:
    from t2t_torch.problem import Problem

# How often a task is run again when its worker dies: a machine of a cluster may be taken away, but
# what dies four times dies of the data.
_RETRIES = 3


def generate_on_ray(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    *,
    num_tasks: int | None = None,
    seed: int | None = None,
    max_cases: int = 0,
    on_bad_record: Policy = "fail",
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Generates a data set by the tasks of an array (`run_task`), which Ray runs and runs again.

    The cluster is that of the environment variable RAY_ADDRESS; without one, Ray is started on this
    machine.  All of its machines have this library and see `data_dir` and the user's folders under
    the same paths.  The shards are those that `generate_data` makes, byte for byte.

    Args:
      problem: what to generate; a registered one, which the workers look up by its name.
      data_dir: where to; shared by all machines.
      tmp_dir: the raw files; shared or not.
      num_tasks: how many tasks there are; by default one for each CPU of the cluster.
      seed: as for `generate_data`.
      max_cases: as for `generate_data`.
      on_bad_record: as for `generate_data`.
      overwrite: replace a data set that was made with other settings, or make it again.
      progress: show a progress bar on stderr.

    Raises:
      UsageError: Ray is not installed.
      DataError: as `run_task`, or a task's worker died again and again.
    """
    ray = _imported()
    folder, raw_folder = Path(data_dir).resolve(), Path(tmp_dir).resolve()
    options: dict[str, Any] = {
        "seed": seed,
        "max_cases": max_cases,
        "on_bad_record": on_bad_record,
    }
    request = Request.of(problem, folder, raw_folder, **options)
    usr_dirs = [str(Path(directory).resolve()) for directory in registry.usr_dirs()]
    with _cluster(ray):
        count = num_tasks or max(1, int(ray.cluster_resources().get("CPU", 1)))
        tasks = Tasks(request, count)
        plan, manifest = tasks.begin(overwrite=overwrite, anew=overwrite)
        if manifest is not None:
            return manifest
        assert plan is not None
        logging.info("%r: %d tasks on Ray.", request.name, count)
        options |= {"num_tasks": count, "overwrite": overwrite, "num_processes": 1}
        _run_all(ray, (problem.full_name, usr_dirs, folder, raw_folder), options, progress=progress)
        outcome = tasks.finish(plan)
    if outcome.manifest is None:
        raise DataError(f"The tasks {outcome.missing} of {request.name!r} did not end. Run again.")
    return outcome.manifest


def _run_all(
    ray: Any, what: tuple[str, list[str], Path, Path], options: dict[str, Any], *, progress: bool
) -> None:
    """Runs all tasks and waits for them; the first error ends the others."""
    remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run)
    count = options["num_tasks"]
    waiting = [remote.remote(*what, {**options, "task_id": task}) for task in range(count)]
    disable = None if progress else True
    with tqdm(desc=f"{what[0]} on Ray", total=count, unit=" tasks", disable=disable) as bar:
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                fault = ray.get(done[0])
            except ray.exceptions.RayError as error:
                _cancel(ray, waiting)
                raise DataError(
                    f"A task of {what[0]!r} died on Ray, {_RETRIES + 1} times: {error}\n"
                    "Look at the cluster's memory and disks, and run it again: what other tasks "
                    "have made is kept."
                ) from error
            if fault is not None:
                _cancel(ray, waiting)
                kind, told = fault
                raise getattr(errors, kind, DataError)(told)
            bar.update()


def _run(
    name: str, usr_dirs: list[str], folder: Path, raw_folder: Path, options: dict[str, Any]
) -> tuple[str, str] | None:
    """Runs a task in a worker of Ray; returns the kind and the text of an error of ours.

    Ray would hand on an exception with the traceback in its text.
    """
    for directory in usr_dirs:
        registry.import_usr_dir(directory)
    try:
        run_task(registry.problem(name), folder, raw_folder, progress=False, **options)
    except T2TError as error:
        return type(error).__name__, str(error)
    return None


def _cancel(ray: Any, tasks: list[Any]) -> None:
    for task in tasks:
        ray.cancel(task, force=True)


@contextlib.contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Connects to the cluster, or starts one, unless the caller of this library has."""
    if ray.is_initialized():
        yield
        return
    here = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
    try:
        ray.init(logging_level="WARNING", **here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Ray cannot be reached: {error}. Look at RAY_ADDRESS, or unset it to run Ray here."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(f"--runner=ray needs Ray:  {install_extra('ray')}") from None
    return ray
