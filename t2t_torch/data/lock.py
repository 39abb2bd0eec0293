"""One process at a time, on one machine or over a shared file system."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from absl import logging


@contextlib.contextmanager
def exclusive(path: Path, purpose: str) -> Iterator[None]:
    """Holds the lock `path` for the body; waits, and says so once, while another process holds it.

    The kernel drops the lock when its holder dies, so a killed process never blocks the next one.
    The file itself stays: to remove it would let two waiting processes lock two different files.

    Args:
      path: the lock file; made if absent, with the folders above it.
      purpose: what the holder does, for the line that a waiting process prints.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Opened without truncation: the holder's process id, which the waiting line names, is in it.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            logging.warning("Waiting for process %s, which is %s (%s).", holder, purpose, path)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
