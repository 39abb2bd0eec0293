"""Storage of checkpoints: system calls, retries, joint saves of processes, file names, waiting.

A file is flushed to disk before anything refers to it, so the guarantees of
`checkpoint_directory.py` also hold after a power failure.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.atomic_files import STAGED_SUFFIX, sync
from t2t_torch.errors import CheckpointError

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World

VARIABLE = "T2T_FAULT"
KILLED = 137
"""Exit code of a killed process, as in a shell: 128 + SIGKILL."""

_calls = itertools.count(1)


def before_system_call() -> None:
    """Hook before each system call of a save; ends the process at the configured one.

    Fault injection for tests: `T2T_FAULT=save:7` ends the process, as `kill -9` would, just before
    the seventh system call of its saves.  Without the variable nothing happens.
    """
    kind, _, number = os.environ.get(VARIABLE, "").partition(":")
    if kind == "save" and next(_calls) >= int(number):
        os._exit(KILLED)


_BLOCK_BYTES = 1 << 24


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Writes a new file and flushes it to disk.

    Returns:
      size in bytes and sha256 of the intended content.
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
    """Replaces a file atomically: readers see the old or the new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{STAGED_SUFFIX}")
    temporary.unlink(missing_ok=True)
    try:
        write_file(temporary, [content.encode()])
        rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Creates a new folder."""
    before_system_call()
    path.mkdir()


def sync_folder(path: Path) -> None:
    """Flushes a folder's entries to disk."""
    before_system_call()
    sync(path)


def rename(path: Path, name: Path) -> None:
    """Renames a file or folder within its parent folder, and flushes the change to disk."""
    before_system_call()
    path.replace(name)
    sync_folder(name.parent)


def remove_folder(path: Path) -> None:
    """Deletes a folder and its content."""
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


_NAME = re.compile(r"ckpt-(0|[1-9][0-9]*)")
_ASIDE = re.compile(r"ckpt-[0-9]+\.corrupt(-[0-9]+)?")
_LEFTOVER = re.compile(r"ckpt-[0-9]+\.(tmp-[0-9]+|removed(-[0-9]+)?)")


def step_of(path: Path) -> int | None:
    """Returns the step of a folder `ckpt-<step>`; None for any other name or a file."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else None


def checkpoint_folders(run: Path) -> dict[int, Path]:
    """Returns the checkpoint folders of a run by step, oldest first, valid or not.

    Excludes unfinished saves (`ckpt-100.tmp-PID`) and corrupt folders that were renamed.
    """
    steps = {step: path for path in run.glob("ckpt-*") if (step := step_of(path)) is not None}
    return dict(sorted(steps.items()))


def folders_set_aside(run: Path) -> list[Path]:
    """Returns the corrupt checkpoints that were renamed to `ckpt-<step>.corrupt`."""
    return [path for path in run.glob("ckpt-*") if _ASIDE.fullmatch(path.name)]


def unfinished_folders(run: Path) -> list[Path]:
    """Returns the remains of killed saves and deletions of checkpoints."""
    return [path for path in run.glob("ckpt-*") if _LEFTOVER.fullmatch(path.name)]


_CALM = (1.0, 5.0, 25.0)
"""Seconds between attempts: enough for short disk-full conditions or a remount."""
_HURRIED = (1.0, 3.0)
"""Less than 5 s in total: after a signal a kill follows soon, in Kubernetes after 30 s."""
_POLL_SECONDS = 0.1


class RetryPolicy:
    """Pauses between attempts of a save; other threads may shorten them at any time.

    Args:
      is_hurried: whether, for example, a signal was received; polled during a pause.

    Attributes:
      is_replaced: a later state waits to be saved instead; ends the pause and further attempts.
    """

    def __init__(self, is_hurried: Callable[[], bool]) -> None:
        self._is_hurried = is_hurried
        self._given_up = False
        self.is_replaced = False

    def give_up(self) -> None:
        """Ends a pause and allows only one more attempt."""
        self._given_up = True

    def after(self, tries: int) -> float | None:
        """Returns the pause in seconds after this many (>= 1) failed attempts; None: give up."""
        pauses = _HURRIED if self._is_hurried() else _CALM
        over = self._given_up or self.is_replaced or tries > len(pauses)
        return None if over else pauses[tries - 1]

    def wait(self, seconds: float) -> None:
        """Waits for this time, or until `give_up`, a signal or a replacement."""
        end, hurried = time.monotonic() + seconds, self._is_hurried()
        while not (self._given_up or self.is_replaced or self._is_hurried() != hurried):
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _POLL_SECONDS))


class PeerDefectError(Exception):
    """Another process failed because of a bug."""


def together(peers: World, work: Callable[[], Any]) -> list[Any]:
    """Runs work in all processes, and returns once all have finished.

    A failure in one process is a failure in all: none continues, and none waits forever.

    Args:
      peers: the group of processes, all of which must call this.
      work: work of this process.

    Returns:
      the results of all processes, by rank.

    Raises:
      OSError, CheckpointError: raised by this process's own work.
      CheckpointError: such an error occurred in another process.
      PeerDefectError: any other error occurred in another process.
      Exception: any other error of this process's own work.
    """
    if peers.size == 1:
        return [work()]
    failed: Exception | None = None
    answer: dict[str, Any] = {}
    try:
        answer["result"] = work()
    except (OSError, CheckpointError) as error:
        failed, answer = error, {"error": str(error)}
    except Exception as error:  # raised below, once the others are informed
        failed, answer = error, {"defect": f"{type(error).__name__}: {error}"}
    answers = peers.gather(answer)
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


POLL_SECONDS = 10.0


def follow(list_now: Callable[[], Iterable[Any]], wait_minutes: float) -> Iterator[Any]:
    """Yields objects in the order of their steps, also new ones, until no more appear.

    Args:
      list_now: returns the existing objects, which have a `step`; one per step is yielded.
      wait_minutes: time to wait for another one; 0: do not wait.
    """
    done: set[int] = set()
    came_at = time.monotonic()
    while True:
        for one in sorted(list_now(), key=lambda one: one.step):
            if one.step in done:
                continue
            done.add(one.step)
            yield one
            came_at = time.monotonic()  # what was done with it takes its time, too
        left = wait_minutes * 60 - (time.monotonic() - came_at)
        if left <= 0:
            return
        time.sleep(min(POLL_SECONDS, left))


def set_time(file: Path, written: int) -> None:
    """Sets the time of a file made from a checkpoint, in nanoseconds, for curves over time."""
    os.utime(file, ns=(written, written))
