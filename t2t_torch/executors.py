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

from t2t_torch.errors import T2TError, UsageError, require
from t2t_torch.executor import (
    Executor,
    available_cpus,
    environment,
    has_outcome,
    log_of,
    parent_follower,
    rank_command,
    run_rank,
)
from t2t_torch.registry import register_executor

_POLL_SECONDS = 0.05


@register_executor("local")
class LocalProcesses(Executor):
    """Processes of this machine, each with its part of the CPUs and a GPU.

    Options: `processes`, the number that run at once; default: the number of CPUs.
    """

    def slots(self) -> int:
        """Returns the number of processes."""
        value = self.options.get("processes", str(available_cpus()))
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
                    with log_of(folder, rank).open("wb") as log:
                        process = subprocess.Popen(
                            rank_command(folder, rank),
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            env={**os.environ, **environment(slot, slots)},
                            preexec_fn=parent_follower(),
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
class RayTasks(Executor):
    """Tasks of Ray, on the cluster at RAY_ADDRESS; without it, Ray is started on this machine.

    Options: those of `ray.remote`, such as `num_cpus` (1), `num_gpus` and `max_retries` (3): how
    often a rank is run again whose worker died.
    """

    def __enter__(self) -> Self:
        self._ray: Any = require("ray", "ray", "--runner=ray needs Ray")
        self._is_ours = not self._ray.is_initialized()
        here = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        try:
            if self._is_ours:
                self._ray.init(logging_level="WARNING", **here)
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
        ray = self._ray
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 3}
        for name, value in self.options.items():
            options[name] = value
            with contextlib.suppress(ValueError):
                options[name] = json.loads(value)
        try:
            remote = ray.remote(**options)(run_rank)
        except ValueError as error:
            raise UsageError(f"--runner_option: {error}") from error
        tasks = {remote.remote(str(folder), rank): rank for rank in ranks}
        waiting = list(tasks)
        try:
            while waiting:
                done, waiting = ray.wait(waiting)
                ray.get(done[0])
                yield tasks[done[0]]
        except ray.exceptions.RayError as error:
            raise T2TError(
                f"A task died on Ray, {options['max_retries'] + 1} times: {error}\n"
                "Look at the cluster's memory and disks, and run it again: what other tasks "
                "have made is kept."
            ) from error
        finally:
            for task in waiting:
                ray.cancel(task, force=True)


@register_executor("slurm")
class SlurmArray(Executor):
    """A job array of Slurm, with an element for each rank.

    Options: those of sbatch by their long names, such as `partition=gpu`, `gres=gpu:1`,
    `time=2:00:00`; `exclusive` has no value.
    """

    def run(self, folder: Path, ranks: Sequence[int]) -> Generator[int]:
        """Submits the array and waits for its end; cancels it if the iterator is closed."""
        if shutil.which("sbatch") is None:
            raise UsageError("--runner=slurm needs sbatch, which is not on this machine's PATH.")
        options = [f"--{name}={value}".rstrip("=") for name, value in self.options.items()]
        command = [
            *("sbatch", "--parsable", "--wait", "--job-name=t2t", *options),
            f"--array={','.join(map(str, ranks))}",
            f"--output={log_of(folder, '%a')}",
            f'--wrap=exec {shlex.join(rank_command(folder))} "$SLURM_ARRAY_TASK_ID"',
        ]
        left = list(ranks)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as sbatch:
            assert sbatch.stdout is not None
            assert sbatch.stderr is not None
            job = sbatch.stdout.readline().strip().partition(";")[0]
            if not job:
                raise UsageError(f"sbatch refuses the job: {sbatch.stderr.read().strip()}")
            try:
                while left:
                    is_over = sbatch.poll() is not None
                    ended = [rank for rank in left if is_over or has_outcome(folder, rank)]
                    left = [rank for rank in left if rank not in ended]
                    yield from ended
                    time.sleep(0 if ended else 20 * _POLL_SECONDS)
            finally:
                if left:
                    subprocess.run(["scancel", job], check=False)
