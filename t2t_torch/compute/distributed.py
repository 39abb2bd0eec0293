"""The processes that train together: one, or those that torchrun started.

    torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer --problem=... --model=...

There is no launcher here.  Gradients go over NCCL on GPUs and gloo on CPUs; small decisions (stop,
save) over gloo always, in a group of their own, so that no process waits for a device to take them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from t2t_torch.compute import groups
from t2t_torch.compute.rendezvous import fresh_store

# The leader alone generates data, decodes and saves; the others wait for its word.  Of a process
# that died they learn at once, by its closed connection.
_LONGEST_WAIT = datetime.timedelta(hours=12)

# For gradients and metrics nobody waits longer than for a pass, a compilation or what a hook does
# between two steps.  NCCL sees no closed connection: so long a process that died holds the others.
_LONGEST_EXCHANGE = datetime.timedelta(minutes=30)

_GRADIENTS = groups.hold(None)  # to torch, no group is the one that gradients go over


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
    decisions: groups.Held = _GRADIENTS

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
    decisions = groups.hold(dist.new_group(backend="gloo", timeout=_LONGEST_WAIT))
    groups.hold(dist.group.WORLD)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device, decisions)
    finally:
        dist.destroy_process_group()
