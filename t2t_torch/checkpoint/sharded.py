"""Tensors of which each process holds a part (FSDP2's), and the whole ones of a checkpoint.

A checkpoint holds whole tensors, however they were divided: it resumes on any number of processes,
divided or not.  torch.distributed.checkpoint's own files are not written: their index is pickled,
and nothing is unpickled here.
"""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """Returns the tensor, put together if it is divided; then all processes must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def divided_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this process's part of a tensor, on the device of `like`, if that one is divided.

    Args:
      tensor: whole, the same in all processes.
      like: its parameter; what has another shape, as the count of an optimizer's steps, stays.
    """
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    mesh = like.device_mesh
    here = tensor.to(like.device)
    return distribute_tensor(here, mesh, like.placements, src_data_rank=None)
