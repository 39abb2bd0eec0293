"""Where a search is kept: optuna's storage, a journal file of its own or any database.

The journal is locked by the kernel (`flock`), not by a file that a killed process leaves behind;
and what such a process left half written is cut off before the next entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import DataError, UsageError
from t2t_torch.tune.optuna_extra import optuna_module

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

JOURNAL = "search.journal"

_BUSY_SECONDS = 60
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before a database is opened again, whose tables others make at this moment."""
_AT_ONCE = re.compile("already exists|unique|duplicate|deadlock|locked", re.IGNORECASE)
"""What a database says then."""


class JournalLock:
    """The lock of a journal, as optuna asks for one.

    Args:
      journal: the file.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._descriptor = -1

    def acquire(self) -> bool:
        """Waits for the lock, and cuts off what a killed process has left of an entry."""
        file = self._journal.with_name(f"{self._journal.name}.lock")
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor
        with self._journal.open("rb+") as journal:
            size = journal.seek(0, os.SEEK_END)
            if size and not _ends_whole(journal, size):
                journal.seek(0)
                journal.truncate(journal.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Lets others write."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _ends_whole(file: Any, size: int) -> bool:
    file.seek(size - 1)
    return bool(file.read(1) == b"\n")


def open_storage(output_dir: Path, url: str) -> BaseStorage:
    """Opens the storage of a search; begins it if it is not there.

    Args:
      output_dir: where the journal file is, if there is no URL.
      url: of a database, as SQLAlchemy reads it; empty: the journal.

    Raises:
      DataError: the journal is damaged.
      UsageError: optuna or the database's driver is missing, the URL cannot be read, or nobody
        answers there.
    """
    optuna = optuna_module()
    if not url:
        output_dir.mkdir(parents=True, exist_ok=True)
        journal = output_dir / JOURNAL
        lock: Any = JournalLock(journal)
        backend = optuna.storages.journal.JournalFileBackend(str(journal), lock_obj=lock)
        try:
            return optuna.storages.JournalStorage(backend)  # type: ignore[no-any-return]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{journal} is damaged: {error!r}. Restore it, or begin in another --output_dir."
            ) from error
    told = without_password(url)
    if not re.match(r"[a-z0-9]+(\+[a-z0-9_]+)?://", url):
        raise UsageError(
            f"--storage={told} is no URL of a database. Expected sqlite:///search.db or "
            "postgresql://user@host/name; without --storage the search is kept in --output_dir."
        )
    with _alone(url):
        for pause in (*_PAUSES, None):
            try:
                return _database(url)
            except Exception as error:  # SQLAlchemy's too, whose import is optuna's own affair
                if not isinstance(error, ImportError) and not _is_of_a_database(error):
                    raise
                known = isinstance(error, ImportError | optuna.exceptions.StorageInternalError)
                cause = str((error.__cause__ if known else None) or error)
                if pause is None or not _AT_ONCE.search(cause):
                    break
                time.sleep(pause)
    first = cause.strip().partition("\n")[0].replace(url, told)
    raise UsageError(
        f"--storage={told} cannot be opened: {first}. Expected the URL of a database that is "
        "there: sqlite:///search.db, or postgresql://user@host/name and its driver."
    )


def _is_of_a_database(error: Exception) -> bool:
    return type(error).__module__.startswith(("sqlalchemy", "alembic", "optuna"))


def _database(url: str) -> BaseStorage:
    optuna = optuna_module()
    arguments = {"timeout": _BUSY_SECONDS} if url.startswith("sqlite") else {}
    return optuna.storages.get_storage(  # type: ignore[no-any-return]
        optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": arguments})
    )


@contextlib.contextmanager
def _alone(url: str) -> Iterator[None]:
    """Lets one process of a machine at a time open a file of SQLite: the first makes its tables."""
    found = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", url)
    file = Path(f"{found[1]}.lock") if found and found[1] != ":memory:" else None
    if file is None or not file.parent.is_dir():
        yield
        return
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def without_password(url: str) -> str:
    """Returns a URL as it may be printed and written down."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", url)
