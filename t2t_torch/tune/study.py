"""Storage of a search: the study, its trial history, and heartbeats of tuners.

The journal is locked by the kernel (`flock`), not by a lock file that a killed process would leave
behind.  An entry half written by a killed process is truncated before the next entry.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_torch.atomic_files import file_lock, is_locked, write_text
from t2t_torch.errors import DataError, UsageError, require
from t2t_torch.files import read_text

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


@functools.cache
def optuna_module() -> Any:
    """Returns the optuna module, with logging reduced to warnings.

    Raises:
      UsageError: optuna is not installed.
    """
    optuna = require("optuna", "tune", "a search needs optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


JOURNAL = "search.journal"

_BUSY_SECONDS = 60
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Retry delays in seconds while other processes create the tables of a database."""
_AT_ONCE = re.compile("already exists|unique|duplicate|deadlock|locked", re.IGNORECASE)
"""Matches the database errors of that situation."""


class JournalLock:
    """Lock of a journal, with optuna's interface.

    Args:
      journal: the journal file.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._held = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Waits for the lock, and truncates an entry that a killed process left incomplete."""
        self._held.enter_context(file_lock(self._journal.with_name(f"{self._journal.name}.lock")))
        with self._journal.open("rb+") as journal:
            size = journal.seek(0, os.SEEK_END)
            journal.seek(max(size - 1, 0))
            if size and journal.read(1) != b"\n":
                journal.seek(0)
                journal.truncate(journal.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Releases the lock."""
        self._held.pop_all().close()  # without the lock of a thread that waited for this one


def open_storage(output_dir: Path, url: str) -> BaseStorage:
    """Opens the storage of a search; creates it if missing.

    Args:
      output_dir: directory of the journal file, used without a URL.
      url: SQLAlchemy URL of a database; empty: the journal.

    Raises:
      DataError: the journal is corrupt.
      UsageError: optuna or the database driver is missing, the URL is invalid, or the database does
        not respond.
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
    shown = without_password(url)
    options = {"connect_args": {"timeout": _BUSY_SECONDS} if url.startswith("sqlite") else {}}
    with _alone(url):
        for pause in (*_PAUSES, None):
            try:
                database = optuna.storages.RDBStorage(url, engine_kwargs=options)
                return optuna.storages.get_storage(database)  # type: ignore[no-any-return]
            except Exception as error:  # SQLAlchemy is imported by optuna only
                of_database = type(error).__module__.startswith(("sqlalchemy", "alembic", "optuna"))
                if not isinstance(error, ImportError) and not of_database:
                    raise
                cause = str(error.__cause__ or error)
                if pause is None or not _AT_ONCE.search(cause):
                    break
                time.sleep(pause)
    first = cause.strip().partition("\n")[0].replace(url, shown)
    raise UsageError(
        f"--storage={shown} cannot be opened: {first}. Expected the URL of a database that is "
        "there: sqlite:///search.db, or postgresql://user@host/name and its driver; without "
        "--storage the search is kept in --output_dir."
    )


def _alone(url: str) -> contextlib.AbstractContextManager[None]:
    """Returns the lock to open an SQLite file under: the first process creates its tables."""
    match = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", url)
    file = Path(f"{match[1]}.lock") if match and match[1] != ":memory:" else None
    return file_lock(file) if file and file.parent.is_dir() else contextlib.nullcontext()


def without_password(url: str) -> str:
    """Returns a URL without its password, for messages and files."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", url)


_T = TypeVar("_T")
_TIMEOUT_SECONDS = 60.0  # timeout for a database that does not respond


class TrialHistory:
    """The entries of one search: its events, in one order that all tuners share.

    It is kept in any optuna storage: a journal file by default, SQLite or PostgreSQL.  An entry is
    a trial of a separate study, `<search>/ledger`: the storage creates it atomically, assigns the
    next number and never changes it, which is sufficient for consensus.  A second study with the
    name of the search serves optuna's tools; a search writes it but never reads it.

    Args:
      storage: see `study.open_storage`.
      name: name of the search; several searches may share a storage.
    """

    def __init__(self, storage: BaseStorage, name: str) -> None:
        self.storage = storage
        self.name = name
        self._optuna = optuna = optuna_module()
        given = {"storage": storage, "study_name": _study_name(name), "load_if_exists": True}
        if not self._retried(lambda: self.is_in(storage, name)):
            self._retried(lambda: optuna.create_study(**given))
        self._study = self._retried(lambda: storage.get_study_id_from_name(_study_name(name)))
        self._read = 0

    @staticmethod
    def is_in(storage: BaseStorage, name: str) -> bool:
        """Returns True if the storage has the history of a search; creates nothing."""
        try:
            storage.get_study_id_from_name(_study_name(name))
        except KeyError:
            return False
        return True

    def new_entries(self) -> list[dict[str, Any]]:
        """Returns the entries added since the last call, in order."""
        trials = self._retried(lambda: self.storage.get_all_trials(self._study, deepcopy=False))
        entries = []
        for trial in trials[self._read :]:
            try:
                entries.append(json.loads(trial.user_attrs["entry"]))
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"entry {trial.number} of the trial history is damaged: {error!r}. Was it "
                    "changed by hand? Begin in another --output_dir, or with another --study_name."
                ) from error
        self._read = len(trials)
        return entries

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry; whether it is valid is known when it is read back."""
        text = json.dumps({**entry, "time": round(time.time(), 3)})
        template = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState.COMPLETE, value=0.0, user_attrs={"entry": text}
        )
        # If the response is lost, the entry is added twice; the second one is void.
        self._retried(lambda: self.storage.create_new_trial(self._study, template))

    def set_metadata(self, key: str, value: Any) -> None:
        """Sets a metadata value of the search; the last value of a key applies."""
        self._retried(lambda: self.storage.set_study_user_attr(self._study, key, value))

    def metadata(self) -> dict[str, Any]:
        """Returns the metadata."""
        return self._retried(lambda: self.storage.get_study_user_attrs(self._study))

    def _retried(self, action: Callable[[], _T]) -> _T:
        """Runs a storage operation; retries for a minute while the database is unavailable."""
        began, pause = time.monotonic(), 0.1
        while True:
            try:
                return action()
            except self._optuna.exceptions.StorageInternalError as error:
                if time.monotonic() - began > _TIMEOUT_SECONDS:
                    cause = error.__cause__ or error
                    raise DataError(
                        f"the storage of the search does not answer: {cause}. Run the same "
                        "command when it does: the search resumes."
                    ) from error
            except (ValueError, json.JSONDecodeError) as error:
                raise DataError(
                    f"the storage of the search is damaged: {error}. Restore it, or begin in "
                    "another --output_dir."
                ) from error
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _study_name(search: str) -> str:
    return f"{search}/ledger"


_BEAT_SECONDS = 20.0
_DEAD_SECONDS = 180.0
_PREFIX = "alive/"
PLACES = "place/"
"""Prefix of metadata: the machine and folder of a place."""


class Heartbeat:
    """Heartbeat of this tuner; active while entered as a context manager.

    Tuners that share an `output_dir` share a *place*.  There each holds a lock on its own file,
    which the kernel releases when the process ends for any reason.  A tuner at another place is
    visible only by its heartbeat, metadata in the trial history: a heartbeat that has not changed
    for minutes, by the observer's clock, is dead.

    Args:
      output_dir: directory of the search.
      history: trial history of the search.
      beats: whether there may be tuners at other places.

    Attributes:
      tuner: unique name of this start of the tuner.
      place: name of `output_dir`.
    """

    def __init__(self, output_dir: Path, history: TrialHistory, *, beats: bool) -> None:
        self.tuner = uuid.uuid4().hex[:12]
        self._output_dir = output_dir
        self._folder = output_dir / "tuners"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file, self._held = self._folder / f"{self.tuner}.lock", contextlib.ExitStack()
        file = self._folder / "place"  # its name, the same for all tuners there
        with file_lock(self._folder / "place.lock"):
            if not file.exists():
                write_text(file, uuid.uuid4().hex[:12] + "\n")
            self.place = read_text(file).strip()
        self._history = history
        self._beats = beats
        self._beaten = -_BEAT_SECONDS
        self._seen: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> Heartbeat:
        self._held.enter_context(file_lock(self._file))
        if self._beats:
            where = f"{socket.gethostname()}:{self._output_dir.absolute()}"
            self._history.set_metadata(f"{PLACES}{self.place}", where)
        self.beat()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)
        self._held.close()

    def beat(self) -> None:
        """Writes a heartbeat for tuners at other places, if due."""
        now = time.monotonic()
        if self._beats and now - self._beaten >= _BEAT_SECONDS:
            self._beaten = now
            self._history.set_metadata(f"{_PREFIX}{self.tuner}", f"{self.place} {time.time():.0f}")

    def is_alive(self, tuner: str, place: str) -> bool:
        """Returns True if a tuner is alive, as far as visible from here."""
        if tuner == self.tuner:
            return True
        if place == self.place:
            return is_locked(self._folder / f"{tuner}.lock")
        return tuner in self._beating()

    def place_is_alive(self, place: str) -> bool:
        """Returns True if a place has a live tuner."""
        return place == self.place or place in self._beating().values()

    def _beating(self) -> dict[str, str]:
        """Returns the places of the tuners whose heartbeats are changing."""
        now, places = time.monotonic(), {}
        for key, value in self._history.metadata().items():
            if not key.startswith(_PREFIX):
                continue
            before, since = self._seen.get(key, ("", now))
            self._seen[key] = (value, since if before == value else now)
            if now - self._seen[key][1] < _DEAD_SECONDS:
                places[key.removeprefix(_PREFIX)] = str(value).partition(" ")[0]
        return places
