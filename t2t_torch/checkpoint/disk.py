"""The system calls of a save; the process may end before any of them.

A file is flushed to the disk before anything refers to it, so that a power cut, too, leaves what
`directory.py` promises.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from t2t_torch.checkpoint.faults import before_system_call
from t2t_torch.data.staging import STAGED_SUFFIX, sync

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
