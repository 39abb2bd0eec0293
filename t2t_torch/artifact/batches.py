"""Inputs of like lengths put together, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def batches_of(lengths: Sequence[int], budget: int, price: float) -> list[list[int]]:
    """Returns the numbers of inputs of like lengths, the longest first.

    Of all ways to cut them, sorted by length, it is the one in which what the batches hold and what
    they cost besides are the least together.

    Args:
      lengths: of the inputs, in any unit; one of 0 counts as 1.
      budget: what a batch may hold with its padding, in that unit; an input that is longer is a
        batch by itself.
      price: what a batch costs, however little it holds, in that unit; with `budget` there are few
        batches.
    """
    if len(lengths) == 1:
        return [[0]]
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    sizes = [max(1, lengths[number]) for number in order]
    widths, costs = np.array(sizes, np.float64), np.zeros(len(order) + 1)
    starts, earliest = [0], 0  # where the last batch begins, by how many inputs are cut
    for end in range(1, len(order) + 1):
        while earliest < end - 1 and sizes[earliest] * (end - earliest) > budget:
            earliest += 1
        counts = np.arange(end - earliest, 0, -1)  # of the last batch
        totals = costs[earliest:end] + widths[earliest:end] * counts
        starts.append(earliest + int(totals.argmin()))
        costs[end] = totals.min() + price
    batches, end = [], len(order)
    while end:
        batches.append(order[starts[end] : end])
        end = starts[end]
    return batches[::-1]
