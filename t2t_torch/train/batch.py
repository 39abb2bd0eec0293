"""What a problem's batches are, and what the loop does with them."""

from __future__ import annotations

import torch
from torch import Tensor

Batch = dict[str, Tensor]
"""The rows of each feature, and of what is noted of them, by name."""


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Returns the batch where the model computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def rows_of(batch: Batch) -> int:
    """Returns how many rows a batch has."""
    return len(next(iter(batch.values())))


def split_rows(batch: Batch, pieces: int) -> list[Batch]:
    """Splits a batch into at most so many, of about as many rows each."""
    if pieces == 1:
        return [batch]
    names = list(batch)
    chunks = [batch[name].chunk(pieces) for name in names]
    return [dict(zip(names, parts, strict=True)) for parts in zip(*chunks, strict=True)]
