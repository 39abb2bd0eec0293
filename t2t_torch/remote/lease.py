"""The lock of a run in a store: one process trains it, on whatever machine.

The lock is an object `train.lease-<number>`, created only if it is not there: of two processes that
create the same number one succeeds.  Its holder writes a growing count into it; a process that sees
no growth for `LEASE_SECONDS` creates the next number, and the former holder, should it wake up,
finds that and ends.  A holder that has died on the same machine is not waited for.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch import reporter
from t2t_torch.errors import CheckpointError, T2TError
from t2t_torch.remote import place
from t2t_torch.remote.store import Store, StoreError

LEASE_SECONDS = 45.0
"""Time without a sign of the holder after which another process may train."""

_NAME = re.compile(r"\.lease-(\d+)$")


class LeaseLostError(T2TError):
    """Another process has taken over a run, because this one gave no sign for too long."""


def _holder() -> dict[str, Any]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    name = boot.read_text("ascii").strip() if boot.exists() else ""
    namespace = str(Path("/proc/self/ns/pid").readlink()) if boot.exists() else ""  # of a container
    place = {"host": socket.gethostname(), "boot": name, "namespace": namespace}
    return {**place, "pid": os.getpid()}


@dataclasses.dataclass(eq=False)
class _Lease:
    """A lease that this process holds."""

    store: Store
    prefix: str
    number: int
    beats: int = 0

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.beat, name="t2t-lease", daemon=True)

    @property
    def name(self) -> str:
        """The name of its object."""
        return f"{self.prefix}.lease-{self.number:06}"

    def content(self) -> bytes:
        """The content of its object, which differs at each call."""
        self.beats += 1
        return json.dumps({**_holder(), "beats": self.beats}).encode()

    def is_lost(self) -> bool:
        """Returns True if there is a later one."""
        return max(_numbers(self.store, self.prefix), default=0) > self.number

    def beat(self) -> None:
        """Gives signs of life until the lease is released or lost."""
        while not self.over.wait(LEASE_SECONDS / 3):
            with contextlib.suppress(StoreError, OSError):
                if self.is_lost():
                    return
                self.store.write(self.name, self.content())


_held: dict[Path, _Lease] = {}


def is_held(path: Path) -> bool:
    """Returns True if this process holds a lease of a folder."""
    return any(lock.parent == path for lock in _held)


def check(path: Path) -> None:
    """Checks, before something is written, that the lease of the folder or of one above is held.

    Raises:
      LeaseLostError: another process has it.
      StoreError: the store cannot be read.
    """
    for lock, held in list(_held.items()):
        if path.is_relative_to(lock.parent) and held.is_lost():
            raise LeaseLostError(
                f"another process trains in {place.url_of(lock.parent)} now, because this one "
                f"gave no sign for {LEASE_SECONDS:g} s. Nothing more is written here; stop that "
                "one before you start this run again."
            )


@contextlib.contextmanager
def hold(lock: Path) -> Iterator[None]:
    """Holds the lease of the folder of a lock file, which is the copy of a URL.

    Args:
      lock: for example `train.lock` of a run.

    Raises:
      CheckpointError: another process holds it.
      StoreError: the store cannot be read or written.
    """
    url = place.url_of(lock.parent)
    made = _acquire(Store(url), lock.stem, url)
    _held[lock] = made
    made.thread.start()
    try:
        yield
    finally:
        made.over.set()
        _held.pop(lock, None)
        with contextlib.suppress(StoreError):
            made.store.remove(made.name)


def _acquire(store: Store, prefix: str, url: str) -> _Lease:
    while True:
        numbers = _numbers(store, prefix)
        made = _Lease(store, prefix, max(numbers, default=0) + 1)
        if numbers:
            _check_is_free(store, f"{prefix}.lease-{numbers[-1]:06}", url)
        try:
            if not store.create(made.name, made.content()):
                continue  # another process was faster: is it alive?
            if store.create(made.name, made.content()):
                raise NotImplementedError
        except (NotImplementedError, TypeError):
            store.write(made.name, made.content())
            reporter.message(
                f"warning: the store of {url} has no conditional writes: two processes that begin "
                "to train there at the same moment are not noticed"
            )
        for number in numbers:
            store.remove(f"{prefix}.lease-{number:06}")
        return made


def _check_is_free(store: Store, name: str, url: str) -> None:
    """Checks that the holder of a lease has died, which may take `LEASE_SECONDS`.

    Raises:
      CheckpointError: it is alive.
    """
    try:
        before = store.read(name)
        holder = json.loads(before)
        here = _holder()
        is_here = all(holder.get(one) == here[one] for one in here if one != "pid")
        if is_here and not Path(f"/proc/{holder['pid']}").exists():
            return
        who = f"process {holder.get('pid')} on {holder.get('host')}"
        reporter.message(f"waiting up to {LEASE_SECONDS:g} s: does {who} still train in {url}?")
        end = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < end:
            time.sleep(min(1.0, LEASE_SECONDS / 10))
            if store.read(name) != before:
                raise CheckpointError(
                    f"another process trains in {url} ({who}). Wait for it, stop it, or use "
                    "another --output_dir."
                )
    except (FileNotFoundError, ValueError, KeyError):
        return


def _numbers(store: Store, prefix: str) -> list[int]:
    """Returns the numbers of the leases, ascending."""
    names = [name for name in store.list() if "/" not in name and name.startswith(f"{prefix}.")]
    return sorted(int(match[1]) for name in names if (match := _NAME.search(name)))
