"""The processes that train together: one, or those that torchrun started.

    torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer --problem=... --model=...

There is no launcher here.  Gradients go over NCCL on GPUs and gloo on CPUs; small decisions (stop,
save) over gloo always, in a group of their own, so that no process waits for a device to take them.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import gc
import os
import sys
import time
import uuid
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

# Groups of processes that messages go over: held here until the process ends, then let go of.
#
# Two ends must be avoided, in both of which one of gloo's threads still has a message to free, for
# which it needs Python's lock.  If the last to let go of a group were C++ (the reducer of a
# DistributedDataParallel), it would join the thread with the lock held: neither would ever end.  If
# it were the interpreter's own end, the lock would never come, and the process would abort.  So
# this room holds each group until all of Python has run, others only a `Held`, and lets go of it
# there: pybind joins the threads without the lock.  Of a mesh, torch's caches of sharded operators
# remember that it was there, and it remembers its groups: it is made to forget them.


_GROUPS: list[dist.ProcessGroup | None] = []
_MESHES: list[DeviceMesh] = []


@dataclasses.dataclass(frozen=True)
class Held:
    """A group, by its place among those held."""

    place: int

    def __call__(self) -> dist.ProcessGroup | None:
        """Returns the group."""
        return _GROUPS[self.place]


def hold(group: dist.ProcessGroup | None) -> Held:
    """Holds a group until the process ends."""
    _GROUPS.append(group)
    return Held(len(_GROUPS) - 1)


def hold_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """Returns a mesh, whose groups are let go of when the process ends."""
    _MESHES.append(mesh)
    return mesh


@atexit.register
def _let_go() -> None:
    if not _MESHES and all(group is None for group in _GROUPS):
        return
    for name in ("last_exc", "last_value", "last_traceback"):  # was printed; holds its frames
        vars(sys).pop(name, None)
    gc.collect()  # first the reducers that nothing but a cycle holds
    for mesh in _MESHES:
        getattr(mesh, "_pg_registry", {}).clear()  # torch 2.11 looks them up by name
    _GROUPS.clear()


# Where processes that start together find each other, and nobody else.


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


# The leader alone generates data, decodes and saves; the others wait for its word.  Of a process
# that died they learn at once, by its closed connection.
_LONGEST_WAIT = datetime.timedelta(hours=12)

# For gradients and metrics nobody waits longer than for a pass, a compilation or what a hook does
# between two steps.  NCCL sees no closed connection: so long a process that died holds the others.
_LONGEST_EXCHANGE = datetime.timedelta(minutes=30)

_GRADIENTS = hold(None)  # to torch, no group is the one that gradients go over


@dataclasses.dataclass(frozen=True)
class World:
    """This process among those that train together.

    Attributes:
      rank: of this process, from 0.
      size: processes.
      device: where this process computes.
      decisions: the group that small numbers go over.
    """

    rank: int
    size: int
    device: torch.device
    decisions: Held = _GRADIENTS

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and talks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum over all processes; on the tensor's own device."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def from_leader(self, value: int) -> int:
        """Returns the leader's number, in every process."""
        if self.size == 1:
            return value
        message = torch.tensor([value])
        dist.broadcast(message, src=0, group=self.decisions())
        return int(message)

    def maximum(self, value: int) -> int:
        """Returns the greatest of all processes' numbers."""
        message = torch.tensor([value])
        if self.size > 1:
            dist.all_reduce(message, op=dist.ReduceOp.MAX, group=self.decisions())
        return int(message)

    @contextlib.contextmanager
    def leader_first(self) -> Iterator[bool]:
        """Runs the body in the leader alone, then lets the others go on; yields whether this is it.

        If the leader raises, the others stop instead of waiting for ever.
        """
        if self.leads:
            try:
                yield True
            except BaseException:
                self.from_leader(0)
                raise
            self.from_leader(1)
        else:
            yield False
            if not self.from_leader(0):
                raise SystemExit(1)  # the leader says why


ONE_PROCESS = World(0, 1, torch.device("cpu"))


class Agreement:
    """Small numbers whose maximum all processes learn at every step, without waiting for it.

    Each call hands in this process's numbers and returns the maxima of one call earlier.  All
    processes must call it equally often.

    Args:
      world: the processes.
      count: how many numbers.
    """

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._handed_in = torch.zeros(count, dtype=torch.int32)
        self._work: dist.Work | None = None

    def __call__(self, *numbers: int) -> list[int]:
        """Returns the agreed numbers.  With one process they are this call's own."""
        if self._world.size == 1:
            return list(numbers)
        self.finish()
        agreed: list[int] = self._handed_in.tolist()
        self._handed_in = torch.tensor(numbers, dtype=torch.int32)
        self._work = dist.all_reduce(
            self._handed_in, op=dist.ReduceOp.MAX, group=self._world.decisions(), async_op=True
        )
        return agreed

    def finish(self) -> None:
        """Waits for what is under way, so that no message is left when the loop ends."""
        if self._work is not None:
            self._work.wait()
            self._work = None


@contextlib.contextmanager
def join_world(*, use_gpu: bool = True) -> Iterator[World]:
    """Joins the processes that torchrun started; a world of one without torchrun.

    Args:
      use_gpu: compute on GPUs if there are any.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = use_gpu and torch.cuda.is_available()
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    store, rank, size = fresh_store()
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=_LONGEST_EXCHANGE
    )
    decisions = hold(dist.new_group(backend="gloo", timeout=_LONGEST_WAIT))
    hold(dist.group.WORLD)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device, decisions)
    finally:
        dist.destroy_process_group()


# Messages between processes beside training: from a thread, while the main one computes.


# As long as gradients may take: a thread that writes a large checkpoint holds up the others.
_LONGEST_MESSAGE_WAIT = datetime.timedelta(hours=12)


@dataclasses.dataclass(frozen=True)
class SideChannel:
    """A group of its own over gloo, so that its messages and training's do not mix.

    Attributes:
      rank: of this process.
      size: processes.
      group: theirs.
    """

    rank: int
    size: int
    group: Held

    @classmethod
    def open(cls) -> SideChannel:
        """Opens a channel between the processes of the world; all of them must do it."""
        group = hold(dist.new_group(backend="gloo", timeout=_LONGEST_MESSAGE_WAIT))
        return cls(dist.get_rank(), dist.get_world_size(), group)

    def exchange(self, message: str) -> list[str]:
        """Returns the messages of all processes, by rank; all must hand in one.

        Raises:
          RuntimeError: a process died.
        """
        own = torch.frombuffer(bytearray(message.encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(own)]), group=self.group())
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(own)] = own
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, padded, group=self.group())
        return [
            bytes(text[: int(size)].tolist()).decode()
            for text, size in zip(found, sizes, strict=True)
        ]
