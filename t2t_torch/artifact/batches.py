"""Inputs of like lengths put together, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches_of(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yields the numbers of inputs of like lengths, the longest first.

    Args:
      lengths: of the inputs, in any unit.
      budget: what a batch may hold with its padding, in that unit; an input that is longer is a
        batch by itself.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        size = max(1, budget // max(1, lengths[order[0]]))
        yield order[:size]
        order = order[size:]
