"""Copies of objects on this machine: `pull`, `push`, `fetch` and `remove`.

What is small is copied when a folder is opened; shards and the tensors of checkpoints are copied
when they are read (`fetch`).  The rules:

- What another machine has changed in the store replaces the copy, also a changed one.
- What has changed here alone is kept, and written to the store by `push`: shards and tensors first,
  each MANIFEST.json, which completes a checkpoint, last.
- A run is written by the holder of its lease alone (`lease.py`).
- Nothing is removed from the store because it is not here; only `remove` does, MANIFEST.json first.
- A checkpoint in the store without MANIFEST.json is not there.

A database in the cache folder has the version of each object that was copied, and the time of its
copy: a copy with another time was changed here.  One process at a time works on the copies of a
bucket, apart from those that fetch single files.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from t2t_torch import reporter
from t2t_torch.atomic_files import file_lock, staged
from t2t_torch.errors import DataError, T2TError
from t2t_torch.remote import lease, place
from t2t_torch.remote.store import Store, StoredObject, StoreError

_REFRESH_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class _Copy:
    """The entry of an object in the database.

    Attributes:
      version: of the object when it was last copied; "" if it never was.
      size: of the copy, in bytes.
      time: of the copy, in nanoseconds; 0 if it is not here, -1 while it is written to the store.
    """

    version: str = ""
    size: int = 0
    time: int = -1

    def is_of(self, file: Path) -> bool:
        """Returns True if a file is this copy, unchanged."""
        with contextlib.suppress(OSError):
            status = file.stat()
            return (status.st_size, status.st_mtime_ns) == (self.size, self.time)
        return False


class _Database:
    """The database of the copies.  Each change is written at once, for all processes."""

    def __init__(self) -> None:
        file = place.cache_folder() / ".copies.sqlite"
        try:
            self._connection = self._open(file)
        except sqlite3.DatabaseError:  # damaged: all is copied again
            file.unlink()
            self._connection = self._open(file)

    @staticmethod
    def _open(file: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(file, timeout=60.0)
        connection.execute("PRAGMA synchronous=OFF")  # if it is lost, all is copied again
        columns = "path TEXT PRIMARY KEY, version TEXT, size INTEGER, time INTEGER"
        with connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS copies ({columns})")
        return connection

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def below(self, path: Path) -> dict[str, _Copy]:
        """Returns the copies of a folder, or of a file, by their names relative to it."""
        query = "SELECT * FROM copies WHERE path = ? OR (path > ? AND path < ?)"
        rows = self._connection.execute(query, (f"{path}", f"{path}/", f"{path}0"))
        return {row[0][len(f"{path}/") :]: _Copy(*row[1:]) for row in rows}

    def set(self, file: Path, copy: _Copy) -> None:
        """Records a copy."""
        row = (f"{file}", copy.version, copy.size, copy.time)
        with self._connection:
            self._connection.execute("REPLACE INTO copies VALUES (?, ?, ?, ?)", row)

    def forget(self, file: Path) -> None:
        """Removes the entry of a file."""
        with self._connection:
            self._connection.execute("DELETE FROM copies WHERE path = ?", (f"{file}",))

    def shards(self) -> dict[Path, _Copy]:
        """Returns the shards that are here, those first that were copied first."""
        query = "SELECT * FROM copies WHERE time > 0 AND path LIKE '%.arrow' ORDER BY time"
        return {Path(row[0]): _Copy(*row[1:]) for row in self._connection.execute(query)}


def _copy_of(version: str, status: os.stat_result) -> _Copy:
    return _Copy(version, status.st_size, status.st_mtime_ns)


@contextlib.contextmanager
def _locked(path: Path, *, alone: bool = False) -> Iterator[_Database]:
    """Holds the lock of a bucket's copies, or that of a single file; yields the database."""
    folder = place.cache_folder() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    scheme, bucket = path.relative_to(place.cache_folder()).parts[:2]
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:2] if alone else f"{scheme}-{bucket}"
    with file_lock(folder / name), _Database() as database:
        yield database


_open: contextvars.ContextVar[frozenset[Path]] = contextvars.ContextVar("open", default=frozenset())
_pulled: dict[Path, float] = {}  # when this process pulled a folder


@contextlib.contextmanager
def opened(paths: Iterable[Path]) -> Iterator[None]:
    """Context of work on copies: pulls them first, and pushes them at the end.

    Args:
      paths: copies of URLs; those that are open already stay as they are.

    Raises:
      StoreError: a store cannot be read or written.
    """
    copies = frozenset(paths) - _open.get()
    before = _open.set(_open.get() | copies)
    try:
        for path in sorted(copies):
            pull(path)
        with pushed(*sorted(copies)):
            yield
    finally:
        _open.reset(before)


@contextlib.contextmanager
def pushed(*paths: Path) -> Iterator[None]:
    """Context that pushes paths at its end.

    Raises:
      T2TError: as the body, with URLs in place of paths; or as `push`, if the body raises nothing.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, T2TError):
            error.args = tuple(place.with_urls(str(said)) for said in error.args)
        with contextlib.suppress(T2TError):  # the first error matters
            for path in paths:
                push(path)
        raise
    for path in paths:
        push(path)


def pull(path: Path) -> None:
    """Copies what is new in the store, without shards and tensors of checkpoints.

    Raises:
      StoreError: the store cannot be read.
    """
    store = Store(place.url_of(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as database:
        listed, known = store.list(), database.below(path)
        there = place.complete(listed)
        _remove_forks(path, there, known)
        for name in [name for name, copy in known.items() if copy.version and name not in listed]:
            file = path / name if name else path
            if known[name].time == 0 or known[name].is_of(file):
                file.unlink(missing_ok=True)
                database.forget(file)
        for name, one in there.items():
            _take(store, path, name, one, known.get(name, _Copy()), database)
    _pulled[path] = time.monotonic()


def _remove_forks(
    path: Path, there: Mapping[str, StoredObject], known: Mapping[str, _Copy]
) -> None:
    """Removes checkpoints here of runs that another machine has trained since."""
    new = {
        name
        for name, one in there.items()
        if name.endswith(f"/{place.MANIFEST}") and known.get(name, _Copy()).version != one.version
    }
    for run in {(path / name).parent.parent for name in new}:
        for folder in run.glob("ckpt-*"):
            manifest = (folder / place.MANIFEST).relative_to(path).as_posix()
            is_checkpoint = place.CHECKPOINT.match(f"{folder.name}/")
            if is_checkpoint and (manifest in new or manifest not in there):
                shutil.rmtree(folder, ignore_errors=True)


def _take(
    store: Store, path: Path, name: str, one: StoredObject, known: _Copy, database: _Database
) -> None:
    """Copies an object that is new or was changed in the store; of bulk notes the version alone."""
    file = path / name if name else path
    is_bulk = place.BULK.search(name) is not None
    if known.version == one.version and (file.exists() or (is_bulk and known.time == 0)):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if is_bulk:
        file.unlink(missing_ok=True)
        database.set(file, _Copy(one.version, 0, 0))
        return
    _copy(store, name, file, database)


def _copy(store: Store, name: str, file: Path, database: _Database, sha256: str = "") -> None:
    """Copies an object to a file, which is there or not at any time.

    Raises:
      DataError: its sha256 is another one.
      FileNotFoundError: there is no such object.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with staged(file) as source:
        made = store.get(name, source)
        if sha256:
            with source.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != sha256:
                raise DataError(
                    f"{place.url_of(file)}: expected sha256 {sha256}, found {found}. The object "
                    "was replaced or damaged; write it again."
                )
    database.set(file, _copy_of(made.version, file.stat()))


def fetch(path: Path, sha256: str = "", cache_gb: float = 0.0, *, again: bool = False) -> bool:
    """Copies an object that is not here, or those of a folder that are not here.

    Args:
      path: file or folder.
      sha256: that of the file; "": it is not compared.
      cache_gb: gigabytes of shards that are kept, with this one; 0: all of them.
      again: True to copy the files of a complete checkpoint that are here, too: one is damaged.

    Returns:
      True if the path is here now; with `again` if it was copied.

    Raises:
      DataError: its sha256 is another one.
      StoreError: the store cannot be read.
    """
    store = Store(place.url_of(path))
    is_folder = place.CHECKPOINT.match(f"{path.name}/") is not None
    bounded = file_lock(place.cache_folder() / ".shards.lock") if cache_gb else nullcontext()
    with _locked(path, alone=not is_folder) as database, bounded:
        if path.is_file():  # another process was faster
            return True
        there, known = store.list(), database.below(path)
        if is_folder and place.MANIFEST not in there:
            copy = known.get(place.MANIFEST, _Copy())
            if copy.is_of(path / place.MANIFEST):  # it was removed from the store
                shutil.rmtree(path, ignore_errors=True)
            return path.exists() and not again
        if cache_gb:
            _evict(path, cache_gb * 1e9 - sum(one.size for one in there.values()), database)
        for name in there:
            file = path / name if name else path
            if again or not file.exists():
                _copy(store, name, file, database, sha256)
    return path.exists()


def _evict(kept: Path, limit: float, database: _Database) -> None:
    """Removes the copies of shards that were copied first, until the others have `limit` bytes."""
    there = {file: copy for file, copy in database.shards().items() if copy.is_of(file)}
    excess = sum(copy.size for copy in there.values()) - limit
    for file, copy in there.items():
        if excess > 0 and file != kept:
            file.unlink(missing_ok=True)
            database.set(file, _Copy(copy.version, 0, 0))
            excess -= copy.size


def push(path: Path) -> None:
    """Writes what has changed here to the store; see the rules above.

    Changes of a run whose lease this process does not hold are written if nobody holds it.

    Raises:
      LeaseLostError: another process has taken over the run.
      StoreError: the store cannot be written.
    """
    for run in _push(path):
        if os.environ.get("RANK", "0") != "0":  # the main process writes the run
            continue
        try:
            with lease.hold(run / "train.lock", waits=False):
                pull(run)
                _push(run)
        except lease.LeaseHeldError as error:
            if not error.is_here:  # a process of this machine writes these copies itself
                reporter.message(f"warning: {place.url_of(run)} is not written: {error}")


def _push(path: Path) -> list[Path]:
    """Writes what has changed; returns the runs with changes whose lease is not held."""
    lease.check(path)
    left: dict[Path, None] = {}
    with _locked(path) as database:
        store, known = Store(place.url_of(path)), database.below(path)
        for name, file in _files(path):
            before = known.get(name, _Copy())
            if before.is_of(file):
                continue
            if (run := _run_of(file, path)) is not None and not lease.is_held(run):
                left[run] = None
                continue
            if file.name == place.MANIFEST:
                lease.check(path)
            try:
                status = file.stat()
                database.set(file, dataclasses.replace(before, time=-1))
                made = store.put(file, name)
            except FileNotFoundError:
                if place.BULK.search(name):  # or a checkpoint would be completed without it
                    raise StoreError(f"{file} was removed before it was written.") from None
                continue
            database.set(file, _copy_of(made.version, status))
    return list(left)


def _run_of(file: Path, base: Path) -> Path | None:
    """Returns the run directory of a file, at or below `base`; None if it is of none."""
    for folder in file.parents:
        is_checkpoint = folder.name.startswith("ckpt-")  # it has copies of a run's files
        is_run = (folder / "task.json").exists() and not (folder / "signature.json").exists()
        if is_run and not is_checkpoint:
            return folder
        if folder == base:
            break
    return None


def _files(path: Path) -> list[tuple[str, Path]]:
    """Returns the files that are copied to the store, by name, in the order in which they are."""
    if path.is_file():
        return [("", path)]
    ordered = []
    for folder, _, names in os.walk(path):
        for file in (Path(folder, name) for name in names):
            name = file.relative_to(path).as_posix()
            if not place.NOT_COPIED.search(name):
                rank = 0 if place.BULK.search(name) else 2 if file.name == place.MANIFEST else 1
                with contextlib.suppress(FileNotFoundError):
                    ordered.append((rank, file.stat().st_mtime_ns, name, file))
    return [(name, file) for _, _, name, file in sorted(ordered)]


def remove(path: Path) -> None:
    """Removes the objects of a path from the store, MANIFEST.json first; the copy stays.

    Raises:
      StoreError: the store cannot be written.
    """
    lease.check(path)
    with _locked(path) as database:
        store = Store(place.url_of(path))
        for name in sorted(store.list(), key=lambda name: not name.endswith(place.MANIFEST)):
            store.remove(name)
        for name in database.below(path):
            database.forget(path / name if name else path)


def refresh(path: Path) -> None:
    """Pulls a folder that this process does not write, at most every few seconds."""
    folder = next((one for one in (path, *path.parents) if one in _pulled), path)
    is_recent = time.monotonic() - _pulled.get(folder, -math.inf) < _REFRESH_SECONDS
    if not (is_recent or lease.is_held(folder)):
        pull(folder)
