"""Groups of processes that messages go over: held here until the process ends, then let go of.

Two ends must be avoided, in both of which one of gloo's threads still has a message to free, for
which it needs Python's lock.  If the last to let go of a group were C++ (the reducer of a
DistributedDataParallel), it would join the thread with the lock held: neither would ever end.  If
it were the interpreter's own end, the lock would never come, and the process would abort.  So this
room holds each group until all of Python has run, others only a `Held`, and lets go of it there:
pybind joins the threads without the lock.
"""

from __future__ import annotations

import atexit
import dataclasses
import gc

import torch.distributed as dist

_GROUPS: list[dist.ProcessGroup | None] = []


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


@atexit.register
def _let_go() -> None:
    gc.collect()  # first the reducers that nothing but a cycle holds
    _GROUPS.clear()
