"""Whether a process holds the lock of a file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock (flock) of a file; none does of one that is not there."""
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
