"""Objects of a store, by fsspec: listed, read, written and removed, with retries."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from t2t_torch import reporter
from t2t_torch.errors import DataError, UsageError, install_extra

T = TypeVar("T")

_PAUSES = (0.2, 1.0, 3.0, 9.0)
"""Seconds between attempts: a store may be overloaded, or restart."""

_VERSIONS = "ETag etag generation md5Hash sha256 blob_id oid LastModified last_modified created"
"""Entries of fsspec's `info` that change with the content, the best first; stores differ."""

_FINAL = (FileNotFoundError, FileExistsError, NotImplementedError, TypeError)


class StoreError(DataError, OSError):
    """A store cannot be read or written; also an OSError, as that of a disk."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """An object of a store.

    Attributes:
      size: in bytes.
      version: changes with the content, for example its ETag.
    """

    size: int
    version: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> StoredObject:
        """Returns the object that fsspec describes."""
        version = next((str(info[name]) for name in _VERSIONS.split() if info.get(name)), "")
        return cls(int(info["size"]), version.strip('"') or str(info["size"]))


class Store:
    """The objects whose URLs begin with one URL.  An object is complete, or it is not there.

    Args:
      url: of a folder, or of a single object.

    Raises:
      UsageError: the store's library is not installed, or there is no such kind of store.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._key = self._open()[1].strip("/")

    def _open(self) -> tuple[Any, str]:
        """Returns the store and the key; fsspec keeps a store for each thread and process."""
        try:
            from fsspec.core import url_to_fs

            store, key = url_to_fs(self.url)
            return store, key
        except ImportError as error:
            hint = f"{install_extra('remote')}, or the package that the message names"
            raise UsageError(f"{self.url} cannot be opened: {error}. Install it:  {hint}") from None
        except ValueError as error:
            raise UsageError(f"{self.url} cannot be opened: {error}.") from None

    def _attempt(self, name: str, work: Callable[[Any, str], T]) -> T:
        """Calls `work(filesystem, key)`, again after errors that may pass.

        Raises:
          FileNotFoundError, FileExistsError, NotImplementedError, TypeError: at once.
          StoreError: all attempts have failed.
        """
        key, url = (f"{base}/{name}" if name else base for base in (self._key, self.url))
        for pause in (*_PAUSES, None):
            try:
                return work(self._open()[0], key)
            except _FINAL:
                raise
            except Exception as error:
                fault = f"{type(error).__name__}: {error}".rstrip(".")
                if pause is None:
                    raise StoreError(
                        f"{url}: {fault}. Check the credentials and the address "
                        "of the store; the same command continues."
                    ) from error
                # Credentials may have expired: those of now are read again.
                type(self._open()[0]).clear_instance_cache()
                if pause > _PAUSES[0]:
                    said = f"{url}: {fault}; trying again in {pause:g} s"
                    reporter.message(f"warning: {said}")
                time.sleep(pause)
        raise AssertionError  # the last attempt has returned or raised

    def list(self) -> dict[str, StoredObject]:
        """Returns the objects below the URL, by their names relative to it.

        The name of a single object, which the URL itself is, is "".
        """

        def work(store: Any, key: str) -> dict[str, StoredObject]:
            store.invalidate_cache()
            found = store.find(key, detail=True)
            if isinstance(found, list):  # adlfs, of a single object
                found = {path: store.info(path) for path in found}
            start = len(self._key) + 1
            names = {path.lstrip("/")[start:]: info for path, info in found.items()}
            is_folder = any(names)  # stores' own pages mark folders by objects without a name
            return {
                name: StoredObject.of(info)
                for name, info in names.items()
                if info["type"] == "file" and not name.endswith("/") and (name or not is_folder)
            }

        try:
            return self._attempt("", work)
        except FileNotFoundError:
            return {}

    def get(self, name: str, target: Path) -> StoredObject:
        """Copies an object to a new file.

        Raises:
          FileNotFoundError: there is no such object.
          StoreError: it cannot be read, or arrives in part.
        """

        def work(store: Any, key: str) -> StoredObject:
            there = self._stat(store, key)
            store.get_file(key, str(target))
            if (size := target.stat().st_size) != there.size:
                raise OSError(f"{size:,} of {there.size:,} bytes arrived")
            return there

        return self._attempt(name, work)

    def put(self, source: Path, name: str) -> StoredObject:
        """Copies a file to an object, which replaces one of this name.

        Raises:
          StoreError: it cannot be written.
        """

        def work(store: Any, key: str) -> StoredObject:
            before = source.stat()
            try:
                if before.st_size:
                    store.put_file(str(source), key)
                else:
                    store.pipe_file(key, b"")
            except FileNotFoundError as error:
                source.stat()  # it may be the file that is not there
                raise OSError(f"there is no such bucket or container ({error})") from None
            made, after = self._stat(store, key), source.stat()
            is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            if is_same and made.size != before.st_size:
                raise OSError(f"the store has {made.size:,} of {before.st_size:,} bytes")
            return made

        return self._attempt(name, work)

    @staticmethod
    def _stat(store: Any, key: str) -> StoredObject:
        store.invalidate_cache(os.path.dirname(key))  # noqa: PTH120 -- no path of this machine
        return StoredObject.of(store.info(key))

    def read(self, name: str) -> bytes:
        """Returns the content of a small object.

        Raises:
          FileNotFoundError: there is no such object.
        """

        return self._attempt(name, lambda store, key: bytes(store.cat_file(key)))

    def write(self, name: str, content: bytes) -> None:
        """Writes a small object."""
        self._attempt(name, lambda store, key: store.pipe_file(key, content))

    def create(self, name: str, content: bytes) -> bool:
        """Writes a small object unless there is one of this name; returns whether it has.

        Raises:
          NotImplementedError: the store has no conditional writes.
        """
        try:
            self._attempt(name, lambda store, key: store.pipe_file(key, content, mode="create"))
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Removes an object; one that is not there is no error."""

        with contextlib.suppress(FileNotFoundError):
            self._attempt(name, lambda store, key: store.rm_file(key))
