"""Signs of life of the training processes: a failed exchange names the process that is missing.

Each process writes a counter to the store of the group once a second, in a thread.  Where an
exchange fails, a process that still runs reads which counters stand still.  A process that ends by
an error of its own leaves the reason in the store.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from t2t_torch.errors import T2TError

_SECONDS = 1.0  # from one sign of life to the next
_WATCHED = 4.0  # seconds in which a process that runs gives a sign
_STORE_TIMEOUT = datetime.timedelta(seconds=20)


def is_of_exchange(error: BaseException | None) -> bool:
    """Returns whether an error is of an exchange between processes: a lost peer or a time-out."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo/" in str(error)
    )


class Heartbeats:
    """The processes of a group, as seen by one of them.

    Args:
      store: store of the group, in which a caller may train several times.
      rank: rank of this process.
      size: number of processes.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        # A client of its own: another's wait does not delay it, and keeps its time-out.
        training = (store.add("t2t/joined", 1) - 1) // size  # each process joins each once
        self._store: Any = PrefixStore(f"t2t/{training}", store.clone())
        self._store.set_timeout(_STORE_TIMEOUT)
        self._rank, self._size = rank, size
        self._ends = threading.Event()
        self._host = socket.gethostname()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Gives signs of life while the block runs; explains its failure.

        Raises:
          T2TError: an exchange of the block failed; names the processes that are missing.
        """

        def beat() -> None:
            count = 0
            with contextlib.suppress(RuntimeError):  # the store has ended: so does the run
                store = self._store.clone()
                while not self._ends.is_set():
                    count += 1
                    store.set(f"alive/{self._rank}", json.dumps([self._host, count]))
                    self._ends.wait(_SECONDS)

        threading.Thread(target=beat, name="t2t-alive", daemon=True).start()
        try:
            yield
        except Exception as error:
            if not is_of_exchange(error):
                self._leave(f"{type(error).__name__}: {error}")
                raise
            raise T2TError(f"{self._missing()}  (Reported here: {_first_line(error)})") from error
        finally:
            self._ends.set()

    def _leave(self, reason: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(f"left/{self._rank}", reason)

    def _missing(self) -> str:
        """Returns which processes did not take part, and on which hosts; takes seconds."""
        try:
            self._leave("")
            before = self._signs()
            time.sleep(_WATCHED + _SECONDS * (self._rank == 0))  # may have the store: is the last
            after = self._signs()
            keys = {rank: f"left/{rank}" for rank in range(self._size)}
            written = {rank: key for rank, key in keys.items() if self._store.check([key])}
            left = {rank: self._store.get(key).decode() for rank, key in written.items()}
        except RuntimeError as error:
            at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            return (
                f"the store of the processes at {at} does not answer: rank 0, or the host of "
                f"--rdzv-endpoint, is lost. {_first_line(error)}"
            )
        failed = {rank: reason for rank, reason in left.items() if reason}
        silent = [r for r in range(self._size) if r not in left and before[r] == after[r]]
        busy = [r for r in range(self._size) if r not in left]
        if failed:
            named = (f"{_name(after, r)} failed: {why.rstrip('.')}." for r, why in failed.items())
            return " ".join(named)
        if silent:
            missing = ", ".join(_name(after, rank) for rank in silent)
            return f"{missing} did not answer: killed, stopped, or its host or network is down."
        if busy:
            missing = ", ".join(_name(after, rank) for rank in busy)
            return f"{missing} runs, but took no part in an exchange: raise --exchange_timeout."
        return "all processes run, and an exchange between them failed: look at the network."

    def _signs(self) -> list[Sequence[Any]]:
        return [
            json.loads(self._store.get(key)) if self._store.check([key]) else ("unknown", 0)
            for key in [f"alive/{rank}" for rank in range(self._size)]
        ]


def _name(signs: Sequence[Sequence[Any]], rank: int) -> str:
    return f"rank {rank} on host {signs[rank][0]}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].removesuffix(" GLHF! 🏖️")
