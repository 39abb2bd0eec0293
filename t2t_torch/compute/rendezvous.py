"""Where processes that start together find each other, and nobody else."""

from __future__ import annotations

import time
import uuid

from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

_POLL_SECONDS = 0.01


def fresh_store() -> tuple[Store, int, int]:
    """Returns a store that only the processes of this start know, and this process's rank and size.

    `torchrun --max-restarts` keeps its store over a restart.  The addresses of processes that died
    are still in it, and whoever reads one before the new process has written its own waits for
    nobody (pytorch issue 135712).  So the leader draws a name that was never used, and hands it to
    each process that asks with a number of its own, likewise never used.
    """
    found: tuple[Store, int, int] = next(rendezvous("env://"))
    store, rank, size = found
    if rank:
        question = uuid.uuid4().hex
        store.set(f"t2t/question/{rank}", question)
        name = store.get(f"t2t/answer/{question}").decode()
        store.set(f"t2t/{name}/{rank}", "here")
    else:
        name = uuid.uuid4().hex
        _answer(store, name, set(range(1, size)))
    return PrefixStore(f"t2t/{name}", store), rank, size


def _answer(store: Store, name: str, ranks: set[int]) -> None:
    """Tells each process the name, until it has heard: its question may be of an earlier start."""
    while ranks:
        for rank in sorted(ranks):
            if store.check([f"t2t/{name}/{rank}"]):
                ranks.discard(rank)
            elif store.check([f"t2t/question/{rank}"]):
                question = store.get(f"t2t/question/{rank}").decode()
                store.set(f"t2t/answer/{question}", name)
        time.sleep(_POLL_SECONDS)
