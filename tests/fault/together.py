"""Processes that train together, without torchrun, and the place where they meet.

The test itself listens there, as torchrun does.  Were a port drawn and left for the first process
to listen at, others could take it meanwhile: torch's, another test's, another test's processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import forked
from torch.distributed import TCPStore

SECONDS = 600  # until processes that hang are killed, and the test fails


class MeetingPlace:
    """A store that listens as long as this lives.

    Args:
      size: how many processes meet.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def environment(self, rank: int) -> dict[str, str]:
        """Returns the variables that tell a process who it is, and where it meets the others."""
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }


def run_together(
    program: Sequence[str | Path], size: int, special: Mapping[int, Mapping[str, str]] | None = None
) -> tuple[list[int], str]:
    """Runs a program as so many forked processes to their end; returns exit codes and what is told.

    Args:
      program: of each process: a Python file and its arguments.
      size: how many.
      special: by rank, environment variables of that process alone.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        meeting, started = MeetingPlace(size), []
        files = [Path(folder) / str(rank) for rank in range(size)]
        for rank, file in enumerate(files):
            own = {**meeting.environment(rank), **(special or {}).get(rank, {})}
            process = forked.start_program(program, file, own)
            started.append(process)
            stack.callback(process.kill)
        for process in started:
            process.join(SECONDS)
        told = "\n".join(file.read_text() for file in files if file.exists())
        assert all(process.exitcode is not None for process in started), f"it hangs:\n{told}"
        return [int(process.exitcode or 0) for process in started], told


def run_commands_together(command: Sequence[str], size: int) -> tuple[list[int], str]:
    """Runs a command as so many processes to their end; returns their exit codes and errors.

    Unlike `run_together` from Python's beginning to its end, which takes seconds.
    """
    with contextlib.ExitStack() as stack:
        meeting, started, files = MeetingPlace(size), [], []
        for rank in range(size):
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **meeting.environment(rank)}
            # Not a pipe: one that nobody reads yet would hold the process up.
            files.append(stack.enter_context(tempfile.TemporaryFile("w+")))
            process = subprocess.Popen(command, env=environment, stderr=files[-1])
            started.append(stack.enter_context(process))
            stack.callback(process.kill)
        codes = [process.wait(SECONDS) for process in started]
        for file in files:
            file.seek(0)
        return codes, "\n".join(file.read() for file in files)
