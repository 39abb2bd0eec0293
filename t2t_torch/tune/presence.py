"""Which tuners of a search are alive, and where their run directories are.

Tuners that share an `output_dir` share a *place*.  There each holds a lock on a file of its own,
which the kernel drops when the process ends, however it ends.  Of a tuner at another place only its
heartbeat is seen, a note in the ledger: one that has not changed for minutes, by the clock of who
looks, is dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import uuid
from pathlib import Path
from types import TracebackType

from t2t_torch.data.staging import staged
from t2t_torch.tune.ledger import Ledger
from t2t_torch.tune.locked import is_locked

_BEAT_SECONDS = 20.0
_DEAD_SECONDS = 180.0
_PREFIX = "alive/"
_PLACES = "place/"


class Presence:
    """This tuner among others; as a context manager it is alive.

    Args:
      output_dir: of the search.
      ledger: of the search.
      beats: whether there may be tuners at other places.

    Attributes:
      tuner: this one's name, of this start alone.
      place: of `output_dir`.
    """

    def __init__(self, output_dir: Path, ledger: Ledger, *, beats: bool) -> None:
        self.tuner = uuid.uuid4().hex[:12]
        self._output_dir = output_dir
        self._folder = output_dir / "tuners"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.place = _place(self._folder)
        self._ledger = ledger
        self._beats = beats
        self._beaten = -_BEAT_SECONDS
        self._seen: dict[str, tuple[str, float]] = {}

    @property
    def _file(self) -> Path:
        return self._folder / f"{self.tuner}.lock"

    def __enter__(self) -> Presence:
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, f"process {os.getpid()}\n".encode())
        if self._beats:
            where = f"{socket.gethostname()}:{self._output_dir.absolute()}"
            self._ledger.note(f"{_PLACES}{self.place}", where)
        self.beat()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def beat(self) -> None:
        """Tells those at other places, now and then, that this tuner is alive."""
        now = time.monotonic()
        if self._beats and now - self._beaten >= _BEAT_SECONDS:
            self._beaten = now
            self._ledger.note(f"{_PREFIX}{self.tuner}", f"{self.place} {time.time():.0f}")

    def is_alive(self, tuner: str, place: str) -> bool:
        """Whether a tuner is, as far as can be seen from here."""
        if tuner == self.tuner:
            return True
        if place == self.place:
            return is_locked(self._folder / f"{tuner}.lock")
        return tuner in self._beating()

    def place_is_alive(self, place: str) -> bool:
        """Whether a tuner is at a place."""
        return place == self.place or place in self._beating().values()

    def _beating(self) -> dict[str, str]:
        """Returns the places of the tuners whose heartbeats change."""
        now, found = time.monotonic(), {}
        for key, note in self._ledger.notes().items():
            if not key.startswith(_PREFIX):
                continue
            before, since = self._seen.get(key, ("", now))
            self._seen[key] = (note, since if before == note else now)
            if now - self._seen[key][1] < _DEAD_SECONDS:
                found[key.removeprefix(_PREFIX)] = str(note).partition(" ")[0]
        return found


def whereabouts(ledger: Ledger, place: str) -> str:
    """Returns the machine and the folder that a place is; empty if nobody has said it."""
    return str(ledger.notes().get(f"{_PLACES}{place}", ""))


def _place(folder: Path) -> str:
    """Returns the name of a place, the same to all who come there."""
    file = folder / "place"
    with (folder / "place.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            return file.read_text("utf-8").strip()
        with staged(file) as temporary:
            temporary.write_text(uuid.uuid4().hex[:12] + "\n", "utf-8")
        return file.read_text("utf-8").strip()
