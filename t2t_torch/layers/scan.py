"""A step for each entry of sequences, one after another."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, Tensor]]
"""(what is carried, an entry of each sequence) -> (what is carried on, what is kept)."""


def scan(step: Step, carried: Tensor, sequences: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Runs over sequences: a loop, and in what is exported one operation of any length.

    Args:
      step: of tensors alone.
      carried: into the first step; its shape stays.
      sequences: [N, ...] each, N at least 1.

    Returns:
      What the last step carries on, and what the steps keep, [N, ...].
    """
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan as operation

        def apart(carried: Tensor, entries: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            # What is carried keeps its layout; what is kept may share no memory with it.
            after, kept = step(carried, entries)
            return after.contiguous(), kept.clone()

        layout = torch.contiguous_format
        last, all_kept = operation(apart, carried.clone(memory_format=layout), sequences)
        return last, all_kept
    kept = []
    for entries in zip(*(each.unbind(0) for each in sequences), strict=True):
        carried, one = step(carried, entries)
        kept.append(one)
    return carried, torch.stack(kept)
