"""Groups of processes that messages go over: held here until the process ends, then let go of.

Two ends must be avoided, in both of which one of gloo's threads still has a message to free, for
which it needs Python's lock.  If the last to let go of a group were C++ (the reducer of a
DistributedDataParallel), it would join the thread with the lock held: neither would ever end.  If
it were the interpreter's own end, the lock would never come, and the process would abort.  So this
room holds each group until all of Python has run, others only a `Held`, and lets go of it there:
pybind joins the threads without the lock.  Of a mesh, torch's caches of sharded operators remember
that it was there, and it remembers its groups: it is made to forget them.
"""

from __future__ import annotations

import atexit
import dataclasses
import gc
import sys

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

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
