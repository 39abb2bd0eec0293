"""Which shards were hashed already and have not changed since, so that opening reads few bytes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.data.staging import staged

if TYPE_CHECKING:
    from t2t_torch.data.manifest import ShardEntry

# A file may change once more within the tick of its file system's clock, and then looks as it did.
# Two seconds is the longest tick there is, that of FAT.
_TICK_NANOSECONDS = 2_000_000_000


def remember(data_dir: Path, name: str, shards: Iterable[ShardEntry]) -> None:
    """Notes that the shards were found to be as the manifest says.

    They are noted with what a change changes: size, times of modification and of change, inode.
    In a folder that cannot be written to, nothing is noted.

    Args:
      data_dir: where the shards are.
      name: the data set's.
      shards: those that were hashed, or written, just now.
    """
    with contextlib.suppress(OSError):
        notes = {shard.file: [shard.sha256, *_state(data_dir / shard.file)] for shard in shards}
        path = _path(data_dir, name)
        earlier = _read(path)
        notes = {file: earlier[file] for file in earlier if (data_dir / file).exists()} | notes
        with staged(path) as temporary:
            temporary.write_text(json.dumps(notes), encoding="utf-8")


def unchanged(data_dir: Path, name: str, shards: Iterable[ShardEntry]) -> set[str]:
    """The files of those shards that were noted and look as they did then.

    Args:
      data_dir: where the shards are.
      name: the data set's.
      shards: as the manifest has them.
    """
    path = _path(data_dir, name)
    try:
        notes, noted_at = _read(path), path.stat().st_mtime_ns
    except OSError:
        return set()
    found = set()
    for shard in shards:
        with contextlib.suppress(OSError):
            state = _state(data_dir / shard.file)
            settled = state[1] + _TICK_NANOSECONDS <= noted_at
            if settled and notes.get(shard.file) == [shard.sha256, *state]:
                found.add(shard.file)
    return found


def _path(data_dir: Path, name: str) -> Path:
    return data_dir / f".{name}.verified.json"


def _state(path: Path) -> tuple[int, int, int, int]:
    """Size, time of modification, inode, and the time of change, which no program can put back."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns


def _read(path: Path) -> Mapping[str, Any]:
    try:
        notes = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}
