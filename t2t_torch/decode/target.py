"""Where outputs go: what may be written over, and how."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from t2t_torch.data.staging import STAGED_SUFFIX, staged
from t2t_torch.errors import UsageError


def check_target(target: Path, *sources: Path, flag: str = "--decode_to_file") -> None:
    """Checks that outputs can be written, so that an hour of work is not for nothing.

    Makes the folder that the target stands in.

    Args:
      target: where the outputs shall go; need not exist.
      sources: files that are read; none of them may be the target.
      flag: that names the target, for errors.

    Raises:
      UsageError: the target is one of the sources, a folder, or cannot be written.
    """
    for source in sources:
        if _is_same(target, source):
            raise UsageError(
                f"the outputs would overwrite {source}, which is read: {target} is the same file. "
                f"Name another with {flag}."
            )
    try:
        _check_place(target, flag)
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror or error}. Expected a file in a folder that "
            f"can be written; name one with {flag}."
        ) from None


def _check_place(target: Path, flag: str) -> None:
    mode = _mode(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{target} is a folder. Expected a file:  {flag}={target / 'outputs.txt'}")
    if mode is not None and not stat.S_ISREG(mode):
        if not os.access(target, os.W_OK):
            raise PermissionError(0, "no permission")
        return
    file = Path(os.path.realpath(target))
    file.parent.mkdir(parents=True, exist_ok=True)
    # A file of the very kind that will be written: it knows of rights, of read-only disks and of
    # names that are too long.
    probe = file.with_name(f".{file.name}.{os.getpid()}{STAGED_SUFFIX}")
    probe.touch()
    probe.unlink()


def goes_to_stdout(target: Path) -> bool:
    """Whether outputs written there come out of the process's standard output."""
    return _is_open_as(target, 1)


@contextlib.contextmanager
def open_target(target: Path) -> Iterator[TextIO]:
    """Opens a file of outputs; it appears whole or not at all.

    A symbolic link stays one: the file that it leads to is replaced.  What is no regular file (a
    pipe, a terminal), and the standard output or error, is written as it is.
    """
    mode = _mode(target)
    for descriptor in (1, 2):
        if _is_open_as(target, descriptor):
            # Not opened anew: that would write over what was printed before.
            (sys.stdout if descriptor == 1 else sys.stderr).flush()
            with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="") as stream:
                yield stream
            return
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        return
    file = Path(os.path.realpath(target))
    file.parent.mkdir(parents=True, exist_ok=True)
    with staged(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def is_replaced(target: Path) -> bool:
    """Whether outputs written there appear as a whole file: there is a regular one, or none."""
    mode = _mode(target)
    return (mode is None or stat.S_ISREG(mode)) and not any(_is_open_as(target, n) for n in (1, 2))


def is_stream(target: Path) -> bool:
    """Whether there is something that is neither a regular file nor a folder."""
    try:
        mode = _mode(target)
    except OSError:
        return False
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    """The kind of what is at the end of all links; None if there is nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _is_open_as(path: Path, descriptor: int) -> bool:
    """Whether a path leads to the file that a descriptor of this process writes."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
