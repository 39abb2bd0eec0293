"""Object stores: `s3://bucket/key`, `gs://`, `abfs://`, `hf://`, `memory://`, as fsspec opens them.

Each URL has one path on this machine, below a cache folder (`place.local`), and every path below
that folder is the copy of a URL.  Code therefore reads and writes local files, as without a store;
a workflow pulls the folders of its settings when it begins and pushes them when it ends (`opened`).

    place.py     URLs and their paths
    store.py     listing, reading and writing of objects, with retries
    mirror.py    what is copied, in which order
    lease.py     the lock of a run for all machines

The functions here do nothing for paths that are no copies: without a URL neither the other modules
nor fsspec are imported.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from pathlib import Path

from t2t_torch.remote.place import is_url, local, url_of

__all__ = [
    "cache_limit",
    "discard",
    "fetch",
    "is_url",
    "local",
    "locked",
    "opened",
    "push",
    "remove",
    "resolve",
    "url_of",
]


_cache_gb: contextvars.ContextVar[float] = contextvars.ContextVar("cache_gb", default=0.0)


def cache_limit() -> float:
    """Returns the gigabytes of shards that are kept, as `opened` has set them; 0: all of them."""
    return _cache_gb.get()


@contextlib.contextmanager
def opened(paths: Iterable[str | Path], cache_gb: float = 0.0) -> Iterator[None]:
    """Context of work on some paths; copies are pulled first and pushed at the end.

    Args:
      paths: files and folders.
      cache_gb: gigabytes of shards that are kept; 0: all of them.

    Raises:
      StoreError: a store cannot be read or written.
    """
    copies = [Path(path) for path in paths if url_of(path)]
    if not copies:
        yield
        return
    from t2t_torch.remote import mirror

    before = _cache_gb.set(cache_gb)
    try:
        with mirror.opened(copies):
            yield
    finally:
        _cache_gb.reset(before)


def resolve(place: str | Path) -> Path:
    """Returns a path as a Path; that of a URL, or of its copy, is pulled first.

    Args:
      place: a URL or a path; of a pattern (`*.csv`) its folder is pulled.

    Raises:
      StoreError: the store cannot be read.
    """
    path = folder = Path(local(str(place))).expanduser()
    if url_of(path):
        from t2t_torch.remote import mirror

        while set("*?[") & set(str(folder)):
            folder = folder.parent
        mirror.refresh(folder)
    return path


def fetch(path: Path, *, sha256: str = "", cache_gb: float = 0.0, again: bool = False) -> bool:
    """Copies a file or folder that is not here; returns whether it is.  See `mirror.fetch`."""
    if path.is_file() or not url_of(path):
        return path.exists() and not again
    from t2t_torch.remote import mirror

    return mirror.fetch(path, sha256, cache_gb, again=again)


def push(path: Path) -> None:
    """Writes what has changed here to the store; see `mirror.push`."""
    if url_of(path):
        from t2t_torch.remote import mirror

        mirror.push(path)


def remove(path: Path) -> None:
    """Removes the objects of a path from the store; the caller removes the copy."""
    if url_of(path):
        from t2t_torch.remote import mirror

        mirror.remove(path)


def discard(file: Path) -> None:
    """Removes a file, if it is there, and its object in a store."""
    remove(file)
    file.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Holds the lease of the folder of a lock file, and pulls the folder; see `lease.hold`."""
    if not url_of(lock.parent):
        yield
        return
    from t2t_torch.remote import lease, mirror

    with lease.hold(lock):
        mirror.pull(lock.parent)  # another machine may have written it until now
        with mirror.pushed(lock.parent):
            yield
