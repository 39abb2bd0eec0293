"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

STAGED_SUFFIX = ".incomplete"


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; on success the file there is synced and renamed.

    A reader therefore sees the old file, no file, or the whole new one, also after a power cut.
    When the body raises, the temporary file is removed and `path` is as it was.
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
def named_errors(path: Path) -> Iterator[None]:
    """Adds the path to an OSError that names no file, as of a write on a full disk.

    Raises:
      OSError: that of the body, with the path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        told = re.search(r"\[errno (\d+)\]", str(error))  # as Arrow writes it
        number = error.errno or (int(told[1]) if told else errno.EIO)
        what = os.strerror(number) if error.errno or told else f"{error}. Is the disk full?"
        raise OSError(number, what, str(path)) from error


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes left of `path`; only for who holds a lock for it."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*{STAGED_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Makes a file's content, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
