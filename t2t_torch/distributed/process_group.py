"""Group of training processes: one, or those started by torchrun.

    torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer --problem=... --model=...

There is no launcher.  Gradients use NCCL on GPUs and gloo on CPUs; small decisions (stop, save)
always use a separate gloo group, so no process waits for a device to make them.

Process groups are kept alive until the process ends and released then.  This avoids two failures,
in both of which a gloo thread must still free a message, for which it needs the GIL.  If C++ (the
reducer of a DistributedDataParallel) releases a group last, it joins the thread while holding the
GIL: neither ever ends.  If the interpreter's shutdown does, the thread never gets the GIL, and the
process aborts.  Therefore this module keeps each group until all Python code has run, other code
only has a `Held`, and the release happens here, where pybind joins the threads without the GIL.
torch's caches of sharded operators keep a mesh alive, and a mesh its groups, so the mesh is made to
drop them.
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
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store
from torch.distributed.rendezvous import rendezvous

from t2t_torch.distributed.peers import Heartbeats
from t2t_torch.errors import UsageError

_GROUPS: list[dist.ProcessGroup | None] = []
_MESHES: list[DeviceMesh] = []


@dataclasses.dataclass(frozen=True)
class Held:
    """Reference to a group by its index among those held."""

    place: int

    def __call__(self) -> dist.ProcessGroup | None:
        """Returns the group."""
        return _GROUPS[self.place]


def hold(group: dist.ProcessGroup | None) -> Held:
    """Keeps a group alive until the process ends."""
    _GROUPS.append(group)
    return Held(len(_GROUPS) - 1)


def hold_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """Returns the mesh; its groups are released when the process ends."""
    _MESHES.append(mesh)
    return mesh


@atexit.register
def _let_go() -> None:
    if not _MESHES and all(group is None for group in _GROUPS):
        return
    for name in ("last_exc", "last_value", "last_traceback"):  # printed already; keeps frames alive
        vars(sys).pop(name, None)
    gc.collect()  # first frees reducers kept only by reference cycles
    for mesh in _MESHES:
        getattr(mesh, "_pg_registry", {}).clear()  # torch 2.11 looks them up by name
    _GROUPS.clear()


_POLL_SECONDS = 0.01


def fresh_store() -> tuple[Store, int, int]:
    """Returns a store private to the processes of this start, and this process's rank and size.

    `torchrun --max-restarts` keeps its store over a restart, including the addresses of dead
    processes; a process that reads one before it is overwritten waits forever (pytorch issue
    135712).  Therefore the main process chooses an unused name, and sends it to each process, which
    requests it with an unused number.
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
    """Sends the name to each process until it is received: a request may be of an earlier start."""
    while ranks:
        for rank in sorted(ranks):
            if store.check([f"t2t/{name}/{rank}"]):
                ranks.discard(rank)
            elif store.check([f"t2t/question/{rank}"]):
                question = store.get(f"t2t/question/{rank}").decode()
                store.set(f"t2t/answer/{question}", name)
        time.sleep(_POLL_SECONDS)


# Only the main process generates data, decodes and saves, a thread that writes a large checkpoint
# delays the others, and they wait.  A closed connection reports a dead process at once.
_LONGEST_WAIT = datetime.timedelta(hours=12)

# Timeout for gradients and metrics: longer than a pass, a compilation or a hook between two steps.
# NCCL does not detect closed connections, so a dead process blocks the others for this long.
_LONGEST_EXCHANGE = datetime.timedelta(minutes=30)

_GRADIENTS = hold(None)  # for torch, the default group is the one for gradients


@dataclasses.dataclass(frozen=True)
class World:
    """This process and its group of training processes.

    Attributes:
      rank: rank of this process, from 0.
      size: number of processes.
      device: device of this process.
      decisions: gloo group for small integers; waits for long work of the main process.
      steps: gloo group for the small integers of each step; waits no longer than for gradients.
    """

    rank: int
    size: int
    device: torch.device
    decisions: Held = _GRADIENTS
    steps: Held = _GRADIENTS

    @property
    def leads(self) -> bool:
        """True if this is the main process, which writes files and prints messages."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum over all processes, on the tensor's device."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def from_leader(self, value: int) -> int:
        """Returns the main process's number in every process."""
        if self.size == 1:
            return value
        message = torch.tensor([value])
        dist.broadcast(message, src=0, group=self.decisions())
        return int(message)

    def maximum(self, value: int) -> int:
        """Returns the maximum over all processes."""
        message = torch.tensor([value])
        if self.size > 1:
            dist.all_reduce(message, op=dist.ReduceOp.MAX, group=self.decisions())
        return int(message)

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by rank; all must call it.

        Raises:
          RuntimeError: a process died.
        """
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.decisions())
        return values

    def on_own_channel(self) -> World:
        """Returns this with a new group for decisions, whose messages do not mix; collective call.

        A thread that writes checkpoints uses such a group.
        """
        group = dist.new_group(backend="gloo", timeout=_LONGEST_WAIT)
        return dataclasses.replace(self, decisions=hold(group))

    @contextlib.contextmanager
    def leader_first(self) -> Iterator[bool]:
        """Runs the body in the main process only while the others wait; yields whether this is it.

        If the main process raises, the others exit instead of waiting forever.
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
                raise SystemExit(1)  # the main process reports the reason


ONE_PROCESS = World(0, 1, torch.device("cpu"))


class Agreement:
    """Non-blocking maximum of small integers over all processes, exchanged at every step.

    Each call submits this process's numbers and returns the maxima of the previous call.  All
    processes must call it equally often.

    Args:
      world: the group of training processes.
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
            self._handed_in, op=dist.ReduceOp.MAX, group=self._world.steps(), async_op=True
        )
        return agreed

    def finish(self, *, failed: bool = False) -> None:
        """Waits for the pending exchange, so that no message is left when the loop ends.

        Args:
          failed: True to forget it: another process may never answer.
        """
        if self._work is not None and not failed:
            self._work.wait()
        self._work = None


@contextlib.contextmanager
def join_world(*, use_gpu: bool = True, exchange_timeout: float = 0.0) -> Iterator[World]:
    """Joins the processes started by torchrun; a group of one without torchrun.

    A process group that the caller has initialized is used, and left as it is.

    Args:
      use_gpu: compute on GPUs if available.
      exchange_timeout: seconds that a process waits for others in an exchange of gradients or
        metrics; 0: half an hour.  A process group of the caller keeps its own.

    Raises:
      T2TError: another process is missing; names it.
    """
    longest = _LONGEST_EXCHANGE
    if exchange_timeout:
        longest = datetime.timedelta(seconds=exchange_timeout)
    is_ours = not (dist.is_available() and dist.is_initialized())
    size = int(os.environ.get("WORLD_SIZE", "1")) if is_ours else dist.get_world_size()
    on_gpu = use_gpu and torch.cuda.is_available()
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    if is_ours:
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        store, rank, size = fresh_store()
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=longest)
    decisions = hold(dist.new_group(backend="gloo", timeout=_LONGEST_WAIT))
    steps = hold(dist.new_group(backend="gloo", timeout=longest))
    if is_ours:
        hold(dist.group.WORLD)
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        with Heartbeats(_get_default_store(), rank, size).watched():
            yield World(rank, size, device, decisions, steps)
    finally:
        if is_ours:
            dist.destroy_process_group()


@contextlib.contextmanager
def chosen_threads(requested: str, recorded: int = 0) -> Iterator[None]:
    """Sets the number of torch's threads while the block runs.

    Args:
      requested: a number, or "auto": as many as the environment sets, or one per core.
      recorded: number of an earlier start that "auto" keeps, because sums of other numbers differ
        in their last bits; 0: none.

    Raises:
      UsageError: it is neither.
    """
    if requested != "auto" and not (requested.isdecimal() and int(requested)):
        raise UsageError(f"--threads={requested}: expected auto, or a number from 1 on.")
    before = number = torch.get_num_threads()
    if requested != "auto":
        number = int(requested)
    elif 0 < recorded <= before and "OMP_NUM_THREADS" not in os.environ:
        number = recorded
    try:
        torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)
