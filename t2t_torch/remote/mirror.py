"""Copies of objects on this machine: `pull`, `push`, `fetch` and `remove`.

What is small is copied when a folder is opened; shards and the tensors of checkpoints are copied
when they are read (`fetch`).  The rules:

- What another machine has changed in the store replaces the copy, also a changed one.
- What has changed here alone is kept, and written to the store by `push`: shards and tensors first,
  each MANIFEST.json, which completes a checkpoint, last.
- Nothing is removed from the store because it is not here; only `remove` does, MANIFEST.json first.
- A checkpoint in the store without MANIFEST.json is not there.

A database in the cache folder has the version of each object that was copied, and the time of its
copy: a copy with another time was changed here.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import math
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from t2t_torch.atomic_files import file_lock, staged
from t2t_torch.errors import DataError, T2TError
from t2t_torch.remote import lease, place
from t2t_torch.remote.store import Store, StoredObject

_MANIFEST = "MANIFEST.json"
_CHECKPOINT = re.compile(r"(?:^|(?<=/))ckpt-\d+(?=/)")
_BULK = re.compile(rf"((^|/)ckpt-\d+[^/]*/(?!{re.escape(_MANIFEST)}$)|\.arrow$)")
_NOT_COPIED = re.compile(
    r"(^|/)(\.[^/]*|[^/]*\.(lock|incomplete|removed[-\d]*|tmp-\d+))(/|$)|\.lease-\d+$"
)
_SHARD = "%.arrow"
_REFRESH_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class _Copy:
    """The entry of an object in the database.

    Attributes:
      version: of the object when it was last copied; "" while it is written to the store.
      size: of the copy, in bytes.
      time: of the copy, in nanoseconds; 0 if it is not here.
    """

    version: str
    size: int
    time: int

    def is_of(self, file: Path) -> bool:
        """Returns True if a file is this copy, unchanged."""
        with contextlib.suppress(OSError):
            status = file.stat()
            return (status.st_size, status.st_mtime_ns) == (self.size, self.time)
        return False


class _Database:
    """The database of the copies.  Each change is written at once, for all processes."""

    def __init__(self) -> None:
        folder = place.cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(folder / ".copies.sqlite", timeout=60.0)
        self._connection.execute("PRAGMA synchronous=OFF")  # if it is lost, all is copied again
        columns = "path TEXT PRIMARY KEY, version TEXT, size INTEGER, time INTEGER"
        with self._connection:
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS copies ({columns})")

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def below(self, path: Path) -> dict[str, _Copy]:
        """Returns the copies of a folder, or of a file, by their names relative to it."""
        query = "SELECT * FROM copies WHERE path = ? OR (path > ? AND path < ?)"
        rows = self._connection.execute(query, (f"{path}", f"{path}/", f"{path}0"))
        return {row[0][len(f"{path}/") :]: _Copy(*row[1:]) for row in rows}

    def set(self, file: Path, version: str, status: os.stat_result | None) -> None:
        """Records a copy with this status; None if it is not here, or is being written."""
        size, written = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        row = (f"{file}", version, size, written)
        with self._connection:
            self._connection.execute("REPLACE INTO copies VALUES (?, ?, ?, ?)", row)

    def forget(self, file: Path) -> None:
        """Removes the entry of a file."""
        with self._connection:
            self._connection.execute("DELETE FROM copies WHERE path = ?", (f"{file}",))

    def shards(self) -> list[Path]:
        """Returns the shards that are here."""
        rows = self._connection.execute(
            "SELECT path FROM copies WHERE time > 0 AND path LIKE ?", (_SHARD,)
        )
        return [Path(row[0]) for row in rows]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[_Database]:
    """Holds the lock of the copies of a path; yields the database."""

    folder = place.cache_folder() / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:2]  # few files; a pull holds one alone
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
        try:
            yield
        except BaseException as error:
            if isinstance(error, T2TError):
                error.args = tuple(place.with_urls(str(said)) for said in error.args)
            with contextlib.suppress(T2TError):  # the first error matters
                _push_all(copies)
            raise
        _push_all(copies)
    finally:
        _open.reset(before)


def _push_all(paths: Iterable[Path]) -> None:
    for path in sorted(paths):
        push(path)


def pull(path: Path) -> None:
    """Copies what is new in the store, without shards and tensors of checkpoints.

    Raises:
      StoreError: the store cannot be read.
    """
    store = Store(place.url_of(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as database:
        there = _copied(store)
        known = database.below(path)
        others = {
            name
            for name, copy in known.items()
            if copy.version and (name not in there or there[name].version != copy.version)
        }
        if others or there.keys() - known.keys():
            for folder in path.rglob(
                "ckpt-*"
            ):  # only this machine has them, and another has gone on
                name = f"{folder.relative_to(path).as_posix()}/"
                if _CHECKPOINT.search(name) and f"{name}{_MANIFEST}" not in there:
                    shutil.rmtree(folder, ignore_errors=True)
        for name in others - there.keys():
            if known[name].time == 0 or known[name].is_of(path / name):
                (path / name).unlink(missing_ok=True)
                database.forget(path / name)
        for name, one in there.items():
            _take(store, path, name, one, known.get(name), database)
    _pulled[path] = time.monotonic()


def _copied(store: Store) -> dict[str, StoredObject]:
    """Returns the objects that are copied, by name: those of complete checkpoints, and no locks."""
    there = {name: one for name, one in store.list().items() if not _NOT_COPIED.search(name)}

    def is_complete(name: str) -> bool:
        match = _CHECKPOINT.search(name)
        return match is None or f"{name[: match.end()]}/{_MANIFEST}" in there

    return {name: one for name, one in there.items() if is_complete(name)}


def _take(
    store: Store, path: Path, name: str, one: StoredObject, known: _Copy | None, database: _Database
) -> None:
    """Copies an object that is new or was changed in the store; of bulk notes the version alone."""
    file = path / name if name else path
    is_bulk = _BULK.search(name) is not None
    known = known or _Copy("none", 0, 0)
    is_noted = is_bulk and known == _Copy(one.version, 0, 0)
    if is_noted or (known.version in ("", one.version) and file.exists()):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if is_bulk:
        file.unlink(missing_ok=True)
        database.set(file, one.version, None)
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
    database.set(file, made.version, file.stat())


def fetch(path: Path, sha256: str = "", cache_gb: float = 0.0) -> bool:
    """Copies an object that is not here, or those of a folder that are not here.

    Args:
      path: file or folder.
      sha256: that of the file; "": it is not compared.
      cache_gb: gigabytes of shards that are kept, with this one; 0: all of them.

    Returns:
      True if the path is here now.

    Raises:
      DataError: its sha256 is another one.
      StoreError: the store cannot be read.
    """
    store = Store(place.url_of(path))
    with _locked(path) as database:
        if path.is_file():  # another process was faster
            return True
        there = store.list()
        is_removed = _CHECKPOINT.match(f"{path.name}/") and _MANIFEST not in there
        if is_removed and (known := database.below(path)):
            shutil.rmtree(path, ignore_errors=True)
            for name in known:
                database.forget(path / name)
            return False
        for name in there:
            file = path / name if name else path
            if not file.exists():
                _copy(store, name, file, database, sha256)
        if cache_gb:
            _evict(path, cache_gb, database)
    return path.exists()


def _evict(kept: Path, cache_gb: float, database: _Database) -> None:
    """Removes the copies of shards that were used least recently, until the others fit."""
    there = {file: file.stat() for file in database.shards() if file.exists()}
    excess = sum(status.st_size for status in there.values()) - cache_gb * 1e9
    for file in sorted(there, key=lambda file: there[file].st_atime_ns):
        if excess <= 0:
            return
        if file != kept:
            file.unlink(missing_ok=True)
            database.set(file, database.below(file)[""].version, None)
            excess -= there[file].st_size


def push(path: Path) -> None:
    """Writes what has changed here to the store; see the rules above.

    Raises:
      LeaseLostError: another process has taken over the run.
      StoreError: the store cannot be written.
    """
    lease.check(path)
    with _locked(path) as database:
        store, known = Store(place.url_of(path)), database.below(path)
        for name, file in _files(path):
            if name in known and known[name].is_of(file):
                continue
            try:
                status = file.stat()
            except FileNotFoundError:  # removed since
                continue
            database.set(file, "", None)
            database.set(file, store.put(file, name).version, status)


def _files(path: Path) -> list[tuple[str, Path]]:
    """Returns the files that are copied to the store, by name, in the order in which they are."""
    if path.is_file():
        return [("", path)]
    ordered = []
    for folder, _, names in os.walk(path):
        for file in (Path(folder, name) for name in names):
            name = file.relative_to(path).as_posix()
            if not _NOT_COPIED.search(name):
                rank = 0 if _BULK.search(name) else 2 if file.name == _MANIFEST else 1
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
        there = sorted(store.list(), key=lambda name: not name.endswith(_MANIFEST))
        for name in there:  # not removed by another machine, should this be interrupted
            database.set(path / name if name else path, "", None)
        for name in there:
            store.remove(name)
        for name in database.below(path):
            database.forget(path / name if name else path)


def refresh(path: Path) -> None:
    """Pulls a folder that this process does not write, at most every few seconds."""
    folder = next((one for one in (path, *path.parents) if one in _pulled), path)
    is_recent = time.monotonic() - _pulled.get(folder, -math.inf) < _REFRESH_SECONDS
    if not (is_recent or lease.is_held(folder)):
        pull(folder)
