"""The lock of a run in a store: one process writes it, on whatever machine.

The lock is an object `train.lease-<number>`, created only if it is not there: of two processes that
create the same number one succeeds, and no number is used twice.  Its holder writes a growing count
into it; a process that sees no growth for `LEASE_SECONDS` creates the next number, and the former
holder, should it wake up, finds that and writes nothing more.  A holder that has died on the same
machine is not waited for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch import reporter
from t2t_torch.atomic_files import is_alive
from t2t_torch.errors import CheckpointError, T2TError
from t2t_torch.remote import place
from t2t_torch.remote.store import Store, StoreError

LEASE_SECONDS = 45.0
"""Time without a sign of the holder after which another process may train."""

_NAME = re.compile(r"\.lease-(\d+)$")


class LeaseLostError(T2TError):
    """Another process has taken over a run, because this one gave no sign for too long."""


class LeaseHeldError(CheckpointError):
    """Another process holds the lease of a run.

    Attributes:
      is_here: True if it runs on this machine.
    """

    is_here = False


def _origin() -> dict[str, Any]:
    """Returns where this process runs: a dead process of the same origin is not waited for."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return {"host": socket.gethostname()}
    namespace = str(Path("/proc/self/ns/pid").readlink())  # of a container
    return {
        "host": socket.gethostname(),
        "boot": boot.read_text("ascii").strip(),
        "namespace": namespace,
    }


@dataclasses.dataclass(eq=False)
class _Lease:
    """A lease that this process holds, or wants."""

    store: Store
    prefix: str
    number: int
    beats: int = 0
    is_lost: bool = False

    def __post_init__(self) -> None:
        self.token = uuid.uuid4().hex
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.beat, name="t2t-lease", daemon=True)

    @property
    def name(self) -> str:
        """The name of its object."""
        return _name(self.prefix, self.number)

    def content(self, **more: Any) -> bytes:
        """The content of its object, which differs at each call."""
        self.beats += 1
        known = {**_origin(), "pid": os.getpid(), "token": self.token, "beats": self.beats}
        return json.dumps({**known, **more}).encode()

    def check(self) -> bool:
        """Returns True if it is held: its object is there, and no later one; once lost, never."""
        numbers = _numbers(self.store, self.prefix)
        self.is_lost |= self.number not in numbers or numbers[-1] > self.number
        return not self.is_lost

    def beat(self) -> None:
        """Gives signs of life until the lease is released or lost."""
        while not self.over.wait(LEASE_SECONDS / 3):
            with contextlib.suppress(StoreError, OSError):
                if not self.check():
                    return
                self.store.write(self.name, self.content())


_held: dict[Path, _Lease] = {}
_lost: set[Path] = set()  # folders whose lease this process has lost


def is_held(folder: Path) -> bool:
    """Returns True if this process holds a lease of a folder."""
    return any(lock.parent == folder for lock in _held)


def check(path: Path) -> None:
    """Checks, before something is written, the leases of the folder, and of those above and below.

    Raises:
      LeaseLostError: another process has taken over one of them.
      StoreError: the store cannot be read.
    """
    for lock, held in list(_held.items()):
        if _is_related(lock.parent, path) and not held.check():
            _lost.add(lock.parent)
    for folder in _lost:
        if _is_related(folder, path):
            raise LeaseLostError(
                f"another training runs in {place.url_of(folder)} now, because this one "
                f"gave no sign for {LEASE_SECONDS:g} s. Nothing more is written here; stop that "
                "one before you start this run again."
            )


def _is_related(folder: Path, path: Path) -> bool:
    return path.is_relative_to(folder) or folder.is_relative_to(path)


@contextlib.contextmanager
def hold(lock: Path, *, waits: bool = True) -> Iterator[None]:
    """Holds the lease of the folder of a lock file, which is the copy of a URL.

    Args:
      lock: for example `train.lock` of a run.
      waits: False not to wait for a sign of a holder that may have died.

    Raises:
      LeaseHeldError: another process holds it.
      StoreError: the store cannot be read or written.
    """
    made = _acquire(Store(place.url_of(lock.parent)), lock.stem, waits=waits)
    _held[lock] = made
    made.thread.start()
    try:
        yield
    finally:
        made.over.set()
        _held.pop(lock, None)
        with contextlib.suppress(StoreError):
            if made.check():
                made.store.write(made.name, made.content(released=True))
            else:
                _lost.add(lock.parent)


def _acquire(store: Store, prefix: str, *, waits: bool) -> _Lease:
    while True:
        numbers = _numbers(store, prefix)
        made = _Lease(store, prefix, max(numbers, default=0) + 1)
        if numbers:
            _check_is_free(store, _name(prefix, numbers[-1]), waits=waits)
        try:
            is_made = store.create(made.name, made.content())
            if not is_made and json.loads(store.read(made.name)).get("token") != made.token:
                continue  # another process was faster: is it alive?
            if store.create(made.name, made.content()):
                raise NotImplementedError
        except (NotImplementedError, TypeError):
            store.write(made.name, made.content())
            reporter.message(
                f"warning: the store of {store.url} has no conditional writes: two processes that "
                "begin to train there at the same moment are not noticed"
            )
        for number in numbers:
            store.remove(_name(prefix, number))
        return made


def _check_is_free(store: Store, name: str, *, waits: bool) -> None:
    """Checks that a lease was released or its holder has died, which may take `LEASE_SECONDS`.

    Raises:
      LeaseHeldError: it is alive, or may be.
    """
    try:
        before = store.read(name)
        holder = json.loads(before)
        is_here = all(holder.get(key) == value for key, value in _origin().items())
        if holder.get("released") or (is_here and not is_alive(holder["pid"])):
            return
    except (FileNotFoundError, ValueError, KeyError):
        return
    who = f"process {holder['pid']} on {holder['host']}"
    if waits:
        reporter.message(
            f"waiting up to {LEASE_SECONDS:g} s: does {who} still train in {store.url}?"
        )
    end = time.monotonic() + (LEASE_SECONDS if waits else 0.0)
    while waits and time.monotonic() < end:
        time.sleep(min(1.0, LEASE_SECONDS / 10))
        now = store.read(name)
        if json.loads(now).get("released"):
            return
        waits = now == before
    if not waits:
        error = LeaseHeldError(
            f"another training runs in {store.url} ({who}). Wait for it, stop it, or use "
            "another --output_dir."
        )
        error.is_here = is_here
        raise error


def _name(prefix: str, number: int) -> str:
    return f"{prefix}.lease-{number:06}"


def _numbers(store: Store, prefix: str) -> list[int]:
    """Returns the numbers of the leases, ascending."""
    names = [name for name in store.list() if "/" not in name and name.startswith(f"{prefix}.")]
    return sorted(int(match[1]) for name in names if (match := _NAME.search(name)))
