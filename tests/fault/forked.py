"""Python programs in processes that are forked from a server, which has imported torch already.

A start takes milliseconds and not seconds.  A program ends there as `sys.exit` ends it, but without
Python's own end: no function of `atexit` is called.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

CONTEXT = multiprocessing.get_context("forkserver")
# Not this file: the server does not know the paths of the tests before Python 3.13.  So that no
# process imports anew what the programs import, and what training does when it has begun.
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "optuna",
        "pandas",  # where it is installed pyarrow imports it, to write shards
        "t2t_torch.bin.commands",
        "t2t_torch.data.generate",
        "t2t_torch.problem_types.mixture",
        "t2t_torch.train.estimator",
        "t2t_torch.train.experiment",
        "t2t_torch.train.task",
        "t2t_torch.tune.search_page",
        "t2t_torch.workflows.decode",
        "t2t_torch.workflows.search",
        "t2t_torch.workflows.train",
        "torch._dynamo",
        "torch.distributed.run",
        "torch.distributed.tensor.debug",
        "torch.utils.tensorboard",
    ]
)


def start_program(
    program: Sequence[str | Path], told: Path, special: Mapping[str, str] | None = None
) -> BaseProcess:
    """Starts a program in a process of one thread.

    Args:
      program: a Python file and its arguments.
      told: the file that takes what it writes to stdout and stderr, after what is there.
      special: environment variables, besides those of this process.
    """
    environment = {**os.environ, **(special or {})}
    # No daemon: it may have children of its own.
    process = CONTEXT.Process(target=_run, args=([*map(str, program)], str(told), environment))
    process.start()
    return process


def write_to(told: str) -> None:
    """Lets this process write stdout and stderr to a file, line by line."""
    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _run(program: list[str], told: str, environment: Mapping[str, str]) -> None:
    write_to(told)
    os.environ.clear()  # the server's are those of its start
    os.environ.update(environment)
    tempfile.tempdir = None
    torch.set_num_threads(1)
    sys.argv = program
    sys.path.insert(0, str(Path(program[0]).parent))
    runpy.run_path(program[0], run_name="__main__")
