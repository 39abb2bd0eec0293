"""Ranks of a job, computed by local processes, Ray, Slurm or an executor of the user.

A rank is a function of (settings, rank, count) that writes files to folders which all machines
share, and returns a JSON value.  Its outcome is written last, so a killed rank is run again and a
finished one is not.  Results are ordered by rank: nothing depends on who computed what, or when.
`executors.py` has the executors; `--num_tasks/--task_id` of t2t-datagen and `shard_id` of
t2t-decoder run one rank, for any other scheduler.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from t2t_torch import errors, registry
from t2t_torch.atomic_files import file_lock, write_text
from t2t_torch.files import read_json, read_text
from t2t_torch.reporter import bar
from t2t_torch.settings import Settings, hp


class Executor(contextlib.AbstractContextManager["Executor"], ABC):
    """Runs ranks and waits for them; a subclass is registered by `@register_executor`.

    It is made before a command changes anything, and entered as a context manager while it is used.

    Args:
      options: options by name, of `--runner_option`; "" for one without a value.

    Raises:
      UsageError: see `check`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.check()

    def check(self) -> None:
        """Checks the options, and what the executor needs on this machine.

        Raises:
          UsageError: an option does not fit, or a program or library is missing.
        """

    def __exit__(self, *_: object) -> None:
        """Releases what `__enter__` of a subclass has taken."""

    def slots(self) -> int:
        """Returns the number of ranks that can run at once; 0: unknown."""
        return 0

    @abstractmethod
    def run(self, folder: Path, ranks: Sequence[int]) -> Generator[int]:
        """Calls `run_rank(folder, rank)` for each rank, anywhere; yields each that has ended.

        A rank that died without an outcome is yielded, too.  When the iterator is closed, the ranks
        that are left are cancelled.

        Raises:
          T2TError: the ranks cannot be started.
        """


class RunnerSettings(Settings):
    """Settings of the executor that runs the parts of a command's work."""

    runner: str | None = hp(
        None,
        "Executor of the parts of the work: local (processes), ray (the cluster at RAY_ADDRESS), "
        "slurm (a job array); default: this command alone.",
    )
    runner_option: tuple[str, ...] = hp(
        (),
        "Option of --runner as NAME=VALUE, of sbatch or of Ray's tasks; local has processes. May "
        "be given repeatedly.",
        repeated=True,
    )

    def has_runner(self) -> bool:
        """Returns True if an executor is requested.

        Raises:
          RegistryError: there is no executor of this name.
          UsageError: as `Executor`; or there are options, but no executor.
        """
        if self.runner_option and not self.runner:
            raise errors.UsageError("--runner_option belongs to --runner: give both.")
        return bool(self.runner and self.executor())

    def executor(self) -> Executor:
        """Returns the requested executor.

        Raises:
          RegistryError: there is no executor of this name.
          UsageError: as `Executor`.
        """
        pairs = (option.partition("=") for option in self.runner_option)
        made: Executor = registry.executor(str(self.runner))({n: value for n, _, value in pairs})
        return made


def map_ranks(
    executor: Executor, function: str, settings: Mapping[str, Any], count: int, folder: Path
) -> list[Any]:
    """Computes all ranks of a job that are not finished; returns the results by rank.

    Args:
      executor: executor, entered.
      function: `module:name` of a function of (settings, rank, count) that returns a JSON value.
      settings: JSON values, with absolute paths; those of another job restart all ranks.
      count: number of ranks.
      folder: folder of the outcomes and logs, shared by all machines; the caller removes it when
        it has used the results.

    Raises:
      T2TError: of the first rank that raises one, which cancels the others; or ranks died.
    """

    def refuse(holder: str) -> NoReturn:
        raise errors.UsageError(f"another command ({holder}) runs the tasks in {folder}.")

    usr_dirs = [str(Path(path).resolve()) for path in registry.usr_dirs()]
    job = {"function": function, "settings": settings, "count": count, "usr_dirs": usr_dirs}
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "lock", refuse):
        is_same = _content(folder / "job.json") == json.loads(json.dumps(job))
        outcomes = {rank: _content(_file(folder, rank)) for rank in range(count)}
        results = {n: one["result"] for n, one in outcomes.items() if is_same and "result" in one}
        missing = [rank for rank in range(count) if rank not in results]
        for rank in missing:
            _file(folder, rank).unlink(missing_ok=True)
        write_text(folder / "job.json", json.dumps(job, indent=2))
        with (
            bar(desc="tasks", total=count, initial=len(results), unit=" tasks") as shown,
            contextlib.closing(executor.run(folder, missing)) as ended,
        ):
            for rank in ended:
                outcome = _content(_file(folder, rank))
                if "error" in outcome:
                    kind, message = outcome["error"]
                    raise getattr(errors, kind, errors.T2TError)(message)
                results.update({rank: outcome["result"]} if outcome else {})
                shown.update()
    if died := [rank for rank in missing if rank not in results]:
        log = log_of(folder, died[0])
        lines = read_text(log, errors="replace").split("\n") if log.exists() else []
        ends = next((f"; {log} ends:\n  {line}" for line in lines[::-1] if line.strip()), ".")
        raise errors.T2TError(
            f"task {errors.listed(died)} of {count} ended without a result{ends}\n"
            "Find the reason, and run the same command again: finished tasks are kept."
        )
    return [results[rank] for rank in range(count)]


def run_rank(folder: str | Path, rank: str | int) -> None:
    """Runs a rank of the job in a folder, in a process of an executor, unless it is finished."""
    folder, rank = Path(folder), int(rank)
    job = read_json(folder / "job.json")
    if _content(_file(folder, rank)):
        return
    for directory in job["usr_dirs"]:
        registry.import_usr_dir(directory)
    module, _, name = job["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    try:
        outcome = {"result": function(job["settings"], rank, job["count"])}
    except errors.T2TError as error:
        outcome = {"error": [type(error).__name__, str(error)]}
    write_text(_file(folder, rank), json.dumps(outcome))


def rank_command(folder: Path, *rank: int) -> list[str]:
    """Returns the command that runs a rank; without a rank, its last argument is missing."""
    code = "import sys; from t2t_torch.executor import run_rank; run_rank(*sys.argv[1:])"
    return [sys.executable, "-c", code, str(folder), *map(str, rank)]


def has_outcome(folder: Path, rank: int) -> bool:
    """Returns True if a rank has ended with a result or an error."""
    return bool(_content(_file(folder, rank)))


def log_of(folder: Path, rank: int | str) -> Path:
    """Returns the file of what a rank's process prints, or of why it died."""
    return folder / f"rank-{rank}.log"


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def _content(path: Path) -> dict[str, Any]:
    """Returns the object in a file; empty if it is missing or incomplete."""
    with contextlib.suppress(OSError, ValueError):
        return dict(read_json(path))
    return {}


def available_cpus() -> int:
    """Returns the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def environment(slot: int, parallel: int) -> dict[str, str]:
    """Returns additional environment variables for the process in a slot.

    Settings of the user are kept: OMP_NUM_THREADS, and the GPUs in CUDA_VISIBLE_DEVICES.

    Args:
      slot: index of the slot, from 0.
      parallel: number of slots.
    """
    threads = str(max(available_cpus() // parallel, 1))
    added = {name: threads for name in _THREADS if name not in os.environ}
    count = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    if devices := [device for device in named.split(",") if device]:
        added["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return added


_PR_SET_PDEATHSIG = 1


def parent_follower() -> Callable[[], Any] | None:
    """Returns a `preexec_fn` of a process that receives SIGTERM when its parent is killed.

    None where the system does not support it.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # slow to import: not for --help

    prctl: Any = ctypes.CDLL(None).prctl  # before the fork
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
