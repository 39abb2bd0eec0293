"""Storage of checkpoints: system calls, retries, joint saves of processes, file names.

A file is flushed to the disk before anything refers to it, so that a power cut, too, leaves what
`directory.py` promises.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from t2t_torch.data.manifest import sha256_of
from t2t_torch.errors import CheckpointError
from t2t_torch.files import STAGED_SUFFIX, sync

# Crashes on request, for tests alone: what a kill in the middle of a save leaves behind.
#
# `T2T_FAULT=save:7` ends the process, as `kill -9` would, just before the seventh system call that
# saving makes in it.  Without the variable nothing happens.


VARIABLE = "T2T_FAULT"
KILLED = 137
"""The exit code of a process that was killed, as a shell tells it: 128 + SIGKILL."""

_calls = itertools.count(1)


def before_system_call() -> None:
    """Is called before each system call of a save; ends the process if it is the one asked for."""
    kind, _, number = os.environ.get(VARIABLE, "").partition(":")
    if kind == "save" and next(_calls) >= int(number):
        os._exit(KILLED)


_BLOCK_BYTES = 1 << 24


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Writes a new file and flushes it to the disk.

    Returns:
      its bytes and their sha256, of what was meant to be written.
    """
    digest, size = hashlib.sha256(), 0
    before_system_call()
    with path.open("xb", buffering=0) as file:
        for chunk in chunks:
            rest = memoryview(chunk).cast("B")
            digest.update(rest)
            size += len(rest)
            while rest:
                before_system_call()
                written = file.write(rest[:_BLOCK_BYTES])
                rest = rest[written:]
        before_system_call()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def replace_file(path: Path, content: str) -> None:
    """Writes a file that a reader sees whole: the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{STAGED_SUFFIX}")
    temporary.unlink(missing_ok=True)
    try:
        write_file(temporary, [content.encode()])
        rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Makes a new folder."""
    before_system_call()
    path.mkdir()


def sync_folder(path: Path) -> None:
    """Flushes a folder's entries to the disk."""
    before_system_call()
    sync(path)


def rename(path: Path, name: Path) -> None:
    """Gives a file, or a folder, another name in the same folder, for good."""
    before_system_call()
    path.replace(name)
    sync_folder(name.parent)


def remove_folder(path: Path) -> None:
    """Deletes a folder and all that is in it."""
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            remove_folder(entry)
        else:
            before_system_call()
            entry.unlink()
    before_system_call()
    path.rmdir()


def free_name(path: Path) -> Path:
    """Returns the path, or the first of path-1, path-2 ... that does not exist."""
    candidate, number = path, 0
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


# What a checkpoint holds besides numbers, and the names of checkpoints.  Imports no torch.


_COPIES = ("task.json", "hparams.json", "experiment.json", "config.json")
_VOCABULARIES = ("vocab.*", "labels.*", "moments.*")  # as problems name them

_NAME = re.compile(r"ckpt-(0|[1-9][0-9]*)")
_ASIDE = re.compile(r"ckpt-[0-9]+\.corrupt(-[0-9]+)?")
_LEFTOVER = re.compile(r"ckpt-[0-9]+\.(tmp-[0-9]+|removed(-[0-9]+)?)")


@dataclasses.dataclass(frozen=True)
class Explanations:
    """What a checkpoint says of the run that it is of.

    Attributes:
      copies: files that explain it, by name.
      vocabularies: the sha256 of each, by name.
    """

    copies: Mapping[str, bytes]
    vocabularies: Mapping[str, str]

    @classmethod
    def of(cls, run: Path) -> Explanations:
        """Reads those of a run directory."""
        files = [run / name for name in _COPIES]
        copies = {file.name: file.read_bytes() for file in files if file.exists()}
        found = [file for pattern in _VOCABULARIES for file in sorted(run.glob(pattern))]
        return cls(copies, {file.name: sha256_of(file) for file in found})


def step_of(path: Path) -> int | None:
    """Returns the step of a folder `ckpt-<step>`; None for any other name or a file."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else None


def checkpoint_folders(run: Path) -> dict[int, Path]:
    """Returns the checkpoint folders of a run by step, oldest first, whole or not.

    Unfinished saves (`ckpt-100.tmp-PID`) and folders that were set aside are not among them.
    """
    steps = {step: path for path in run.glob("ckpt-*") if (step := step_of(path)) is not None}
    return dict(sorted(steps.items()))


def folders_set_aside(run: Path) -> list[Path]:
    """Returns the broken checkpoints that were renamed to `ckpt-<step>.corrupt`."""
    return [path for path in run.glob("ckpt-*") if _ASIDE.fullmatch(path.name)]


def unfinished_folders(run: Path) -> list[Path]:
    """Returns what killed saves and deletions of checkpoints have left behind."""
    return [path for path in run.glob("ckpt-*") if _LEFTOVER.fullmatch(path.name)]


# How long a save that fails is tried again.


_CALM = (1.0, 5.0, 25.0)
"""Seconds between tries: what fills a disk for a moment, or mounts it anew, is over then."""
_HURRIED = (1.0, 3.0)
"""Less than 5 s in all: whoever sent a signal kills soon, Kubernetes after 30 s."""
_POLL_SECONDS = 0.1


class RetryPolicy:
    """The pauses between the tries of a save; other threads may cut them short at any moment.

    Args:
      is_hurried: whether a signal has come, say; asked again and again during a pause.

    Attributes:
      is_replaced: whether a later state waits to be saved in place of what is tried; a pause ends
        and no other try is made.
    """

    def __init__(self, is_hurried: Callable[[], bool]) -> None:
        self._is_hurried = is_hurried
        self._given_up = False
        self.is_replaced = False

    def give_up(self) -> None:
        """Ends a pause, after which there is one more try and no other, from now on."""
        self._given_up = True

    def after(self, tries: int) -> float | None:
        """Returns the seconds to wait after so many failed tries, 1 or more; None: no more."""
        pauses = _HURRIED if self._is_hurried() else _CALM
        over = self._given_up or self.is_replaced or tries > len(pauses)
        return None if over else pauses[tries - 1]

    def wait(self, seconds: float) -> None:
        """Waits so long, or until there is reason to wait no longer."""
        end, hurried = time.monotonic() + seconds, self._is_hurried()
        while not (self._given_up or self.is_replaced or self._is_hurried() != hurried):
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _POLL_SECONDS))


# Processes that write a checkpoint together: each its own parts, all or none of it.


class ProcessGroup(Protocol):
    """The processes that save together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """Of this process, from 0, which is the leader."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def exchange(self, message: str) -> Sequence[str]:
        """Hands a message to all and returns those of all, by rank; all must call it.

        Raises:
          RuntimeError: a process died.
        """


class PeerDefectError(Exception):
    """Another process failed for a reason that is a defect of the program."""


def together(peers: ProcessGroup, work: Callable[[], Any]) -> list[Any]:
    """Does work in all processes, and returns once all have done theirs.

    If it fails in one it fails in all: none goes on, and none waits for one that has given up.

    Args:
      peers: the processes, all of which must call this.
      work: of this process; its result must fit into JSON.

    Returns:
      the results of all processes, by rank.

    Raises:
      OSError, CheckpointError: of this process's own work.
      CheckpointError: such an error came up in another process.
      PeerDefectError: any other came up in another process.
      Exception: any other, of this process's own work.
    """
    failed: Exception | None = None
    answer: dict[str, Any] = {}
    try:
        answer["result"] = work()
    except (OSError, CheckpointError) as error:
        failed, answer = error, {"error": str(error)}
    except Exception as error:  # raised below, once the others know
        failed, answer = error, {"defect": f"{type(error).__name__}: {error}"}
    answers = [json.loads(message) for message in peers.exchange(json.dumps(answer))]
    if failed is not None and "defect" in answer:
        raise failed
    for rank, other in enumerate(answers):
        if "defect" in other:
            raise PeerDefectError(f"process {rank}: {other['defect']}")
    if failed is not None:
        raise failed
    for rank, other in enumerate(answers):
        if "error" in other:
            raise CheckpointError(f"process {rank}: {other['error']}")
    return [other["result"] for other in answers]
