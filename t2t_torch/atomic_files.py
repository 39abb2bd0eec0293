"""Files that are written whole or not at all, and locks of files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

STAGED_SUFFIX = ".incomplete"


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of `path`; on success it is synced and renamed.

    A reader therefore sees the old file, no file, or the complete new one, even after a power
    failure.  If the body raises, the temporary file is removed and `path` is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{STAGED_SUFFIX}")
    try:
        with named_errors(path):
            yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on success it is renamed to it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{STAGED_SUFFIX}")
    try:
        temporary.mkdir()
        yield temporary
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with staged(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def file_lock(path: Path, if_held: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Holds the lock (flock) of a file, on this machine, and names this process in it.

    The kernel releases the lock when its holder ends in any way.  The file is not removed, because
    two waiting processes could then lock two different files.

    Args:
      path: the file, created if missing.
      if_held: called with the name of the holder before this waits for it; it may raise an error.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # never waits, as "a" of a pipe
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if_held(os.read(descriptor, 256).decode(errors="replace").strip() or "unknown")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # forked workers hold copies of it
    finally:
        os.close(descriptor)


def is_locked(file: Path) -> bool:
    """Returns True if a process holds the lock (flock) of a file; False if it does not exist."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Adds the path to an OSError without one, for example of a write to a full disk.

    Raises:
      OSError: the error of the body, with the path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        match = re.search(r"\[errno (\d+)\]", str(error))  # as Arrow writes it
        number = error.errno or (int(match[1]) if match else errno.EIO)
        what = os.strerror(number) if error.errno or match else str(error)
        raise OSError(number, what, str(path)) from error


def remove_leftovers(path: Path) -> None:
    """Removes temporary files of `path` left by killed processes; the caller holds its lock."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*{STAGED_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flushes the content of a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_alive(pid: int) -> bool:
    """Returns True if there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
