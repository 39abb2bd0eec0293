"""The executors of `--runner`: processes of this machine, tasks of Ray, a job array of Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Self

from t2t_torch import executor
from t2t_torch.atomic_files import write_text
from t2t_torch.errors import UsageError, require
from t2t_torch.files import read_text
from t2t_torch.registry import register_executor

_POLL_SECONDS = 0.05


@register_executor("local")
class LocalProcesses(executor.Executor):
    """Processes of this machine, each with its part of the CPUs and a GPU.

    Options: `processes`, the number that run at once; default: the number of CPUs.
    """

    def check(self) -> None:
        """See the base class."""
        self.slots()

    def slots(self) -> int:
        """Returns the number of processes."""
        value = self.options.get("processes", str(executor.available_cpus()))
        if self.options.keys() - {"processes"} or not value.isdecimal() or not int(value):
            raise UsageError("--runner=local has one --runner_option, processes=N, from 1 on.")
        return int(value)

    def run(self, folder: Path, ranks: Sequence[int]) -> Generator[int]:
        """Starts a process for each rank when another has ended."""
        slots = min(self.slots(), len(ranks))
        waiting, free = list(ranks), list(range(slots))
        running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        try:
            while waiting or running:
                while waiting and free:
                    rank, slot = waiting.pop(0), free.pop(0)
                    with executor.log_of(folder, rank).open("wb") as log:
                        process = subprocess.Popen(
                            executor.rank_command(folder, rank),
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            env={**os.environ, **executor.environment(slot, slots)},
                            preexec_fn=executor.parent_follower(),
                        )
                    running[rank] = slot, process
                time.sleep(_POLL_SECONDS)
                for rank in [rank for rank, (_, one) in running.items() if one.poll() is not None]:
                    free.append(running.pop(rank)[0])
                    yield rank
        finally:
            for _, process in running.values():
                process.kill()
                process.wait()


@register_executor("ray")
class RayTasks(executor.Executor):
    """Tasks of Ray, on the cluster at RAY_ADDRESS; without it, Ray is started on this machine.

    Options: those of `ray.remote`, such as `num_cpus` (1), `num_gpus` and `max_retries` (3): how
    often a rank is run again whose worker died.
    """

    def check(self) -> None:
        """Imports Ray, and declares the task."""
        self._ray: Any = require("ray", "ray", "--runner=ray needs Ray")
        given: dict[str, Any] = dict(self.options)
        for name, value in self.options.items():
            with contextlib.suppress(ValueError):
                given[name] = json.loads(value)
        try:
            self._task = self._ray.remote(num_returns=1, **given)(executor.run_rank)
        except (TypeError, ValueError) as error:
            raise UsageError(f"--runner_option of Ray's tasks: {error}") from error

    def __enter__(self) -> Self:
        self._is_ours = not self._ray.is_initialized()
        address = os.environ.get("RAY_ADDRESS") or "local"
        try:
            if self._is_ours:
                self._ray.init(address, logging_level="WARNING", include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"Ray cannot be reached: {error}. Look at RAY_ADDRESS, or unset it to run Ray here."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def slots(self) -> int:
        """Returns the number of CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(self, folder: Path, ranks: Sequence[int]) -> Generator[int]:
        """Starts all tasks; Ray runs those again whose workers die."""
        tasks = {self._task.remote(str(folder), rank): rank for rank in ranks}
        waiting = list(tasks)
        try:
            while waiting:
                (done,), waiting = self._ray.wait(waiting)
                try:
                    self._ray.get(done)
                except self._ray.exceptions.RayError as error:
                    write_text(executor.log_of(folder, tasks[done]), str(error))
                yield tasks[done]
        finally:
            for task in waiting:
                self._ray.cancel(task, force=True)


@register_executor("slurm")
class SlurmArray(executor.Executor):
    """A job array of Slurm, with an element for each rank.

    Options: those of sbatch by their long names, such as `partition=gpu`, `gres=gpu:1`,
    `time=2:00:00`; `exclusive` has no value.
    """

    def check(self) -> None:
        """See the base class."""
        for name in self.options:
            if any(own.startswith(name) for own in ("array", "output", "wrap")):
                raise UsageError(f"--runner_option={name}: --runner=slurm sets it; leave it out.")
        if shutil.which("sbatch") is None:
            raise UsageError("--runner=slurm needs sbatch, which is not on this machine's PATH.")

    def run(self, folder: Path, ranks: Sequence[int]) -> Generator[int]:
        """Submits the array and waits for its end; cancels it if the iterator is closed."""
        array = folder / "array"  # the number of its job
        old = read_text(array).strip() if array.exists() else ""
        if old:  # its command was killed, or did not wait for its end
            subprocess.run(["scancel", old], check=False)
        command = [
            *("sbatch", "--parsable", "--wait", "--job-name=t2t"),
            *([f"--dependency=afterany:{old}"] if old else []),
            *(f"--{name}={value}".rstrip("=") for name, value in self.options.items()),
            f"--array={','.join(map(str, ranks))}",
            f"--output={executor.log_of(Path(str(folder).replace('%', '%%')), '%a')}",
            f'--wrap=exec {shlex.join(executor.rank_command(folder))} "$SLURM_ARRAY_TASK_ID"',
        ]
        left = list(ranks)
        with array.open("w") as number:
            sbatch = subprocess.Popen(command, stdout=number, stderr=subprocess.PIPE, text=True)
        with sbatch:
            try:
                while left:
                    is_over = sbatch.poll() is not None
                    if is_over and not read_text(array):
                        raise UsageError(f"sbatch refuses the job: {sbatch.communicate()[1]}")
                    ended = [rank for rank in left if is_over or executor.has_outcome(folder, rank)]
                    left = [rank for rank in left if rank not in ended]
                    yield from ended
                    time.sleep(0 if ended else 20 * _POLL_SECONDS)
            finally:
                if not left:
                    array.unlink()
                elif job := read_text(array).strip():
                    subprocess.run(["scancel", job], check=False)
