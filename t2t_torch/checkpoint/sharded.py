"""Tensors of which each process holds a part (FSDP2's), and what a process saves of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import empty as empty_dtensor

Offsets = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Share:
    """What one process saves of a state that is divided.

    Attributes:
      rank: of the process, from 0.
      size: processes, all of which save a share.
      offsets: where each part begins in its whole, by kind of tensors and name.
    """

    rank: int
    size: int
    offsets: Mapping[str, Mapping[str, Offsets]]

    @classmethod
    def of(
        cls, tensors: Mapping[str, Mapping[str, Tensor]]
    ) -> tuple[Share | None, Mapping[str, Mapping[str, Tensor]]]:
        """Returns this process's share and the tensors that are in it; None if nothing is divided.

        Nothing is exchanged and nothing is copied.  Of what is the same in all processes, as the
        count of an optimizer's steps, the first one's is saved.

        Args:
          tensors: by kind and name.
        """
        divided = [
            t for named in tensors.values() for t in named.values() if isinstance(t, DTensor)
        ]
        if not divided:
            return None, tensors
        mesh = divided[0].device_mesh
        rank = mesh.get_local_rank()
        found = {kind: _parts(named, leads=rank == 0) for kind, named in tensors.items()}
        offsets = {
            kind: {name: offset for name, (offset, _) in parts.items()}
            for kind, parts in found.items()
        }
        own = {
            kind: {name: part for name, (_, part) in parts.items()} for kind, parts in found.items()
        }
        return cls(rank, mesh.size(), offsets), own


def divided_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this process's part of a tensor, on the device of `like`, if that one is divided.

    Args:
      tensor: whole, the same in all processes; or divided already.
      like: its parameter; what has another shape, as the count of an optimizer's steps, stays.
    """
    if isinstance(tensor, DTensor) or not is_divided_as(tensor.shape, like):
        return tensor
    here = tensor.to(like.device)
    mesh = cast("DTensor", like).device_mesh
    return distribute_tensor(here, mesh, cast("DTensor", like).placements, src_data_rank=None)


def is_divided_as(shape: torch.Size, like: Tensor | None) -> bool:
    """Whether what belongs to a parameter is divided as it is."""
    return isinstance(like, DTensor) and like.shape == shape


def place_for(shape: torch.Size, dtype: torch.dtype, like: Tensor | None) -> Tensor:
    """Returns memory for a tensor: this process's part of it where `like` is divided.

    Args:
      shape: of the whole.
      dtype: of its numbers.
      like: the parameter that it belongs to, if there is one; not divided, it tells nothing.

    Returns:
      numbers that are yet to be written; whole ones are on the CPU.
    """
    if not is_divided_as(shape, like):
        return torch.empty(shape, dtype=dtype)
    divided = cast("DTensor", like)
    return empty_dtensor(
        shape, dtype=dtype, device_mesh=divided.device_mesh, placements=divided.placements
    )


def _parts(tensors: Mapping[str, Tensor], *, leads: bool) -> dict[str, tuple[Offsets, Tensor]]:
    """Returns where the parts that this process saves begin, and the parts."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(dict(tensors), is_coordinator=leads)
    parts = {}
    for item in planner.create_local_plan().items:
        name, data = item.index.fqn, item.tensor_data
        if data is None:
            raise TypeError(f"{name} is no tensor")
        divided = isinstance(tensors[name], DTensor)
        empty = 0 in data.chunk.sizes and 0 not in data.size  # this process has nothing of it
        if (divided and not empty) or (leads and not divided):
            part = cast("Tensor", planner.resolve_data(item))
            parts[name] = tuple(data.chunk.offsets), part
    return parts
