"""How known transitions go over a stack: what stands on what, and what is composed of what.

All is found before anything is computed, so that a network need not go from transition to
transition: it goes by the height of the stack, and by the depth of what is composed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t2t_torch.text.encoder import NUM_RESERVED

_Ints: TypeAlias = npt.NDArray[np.int64]

SHIFT_ID, REDUCE_ID = NUM_RESERVED, NUM_RESERVED + 1
"""The ids of the transitions that open nothing; all above open a constituent."""


class Height(NamedTuple):
    """What is pushed to one height of the stack.

    Attributes:
      count: of pushes.
      parents: what each stands on, as a place among the pushes of the height below, [count].
    """

    count: int
    parents: Tensor


class Structure(NamedTuple):
    """A batch of transitions.  N is the number of all: each of them pushes one vector.

    A *vector* is numbered from 1, 0 is a vector of zeros: first those of shifts and of opened
    constituents, in the order of `sources`, then those that are composed, depth after depth.

    Attributes:
      sources: where the vectors that are not composed come from: places in the words' [B * (S + 1)]
        and then the transitions' [B * T] vectors.
      composed: for each depth the vectors of its members, the opened constituent and then its
        children, filled up with 0; [number of them, most members].
      vectors: which vector each push is, in the order of heights, [N].
      heights: from the lowest.
      tops: for each transition the push that is the top of the stack before it, counted from 1 in
        the order of heights; 0 is an empty stack.  [B, T].
      fronts: how many words were taken before each transition.  [B, T].
    """

    sources: Tensor
    composed: list[Tensor]
    vectors: Tensor
    heights: list[Height]
    tops: Tensor
    fronts: Tensor


class _Stack(NamedTuple):
    """What is known of each transition, [B, T] each.

    Attributes:
      height: of the stack after it.
      parent: the transition whose push it stands on; -1 is none.
      depth: of composition; 0 where nothing is composed.
      owner: the transition that composes its push; -1 is none.
      order: its place among those that are composed together.
      front: words taken before it.
    """

    height: _Ints
    parent: _Ints
    depth: _Ints
    owner: _Ints
    order: _Ints
    front: _Ints


def structure_of(ids: Tensor, words: int) -> Structure:
    """Returns the structure of transitions.

    What is no tree is gone through all the same: a REDUCE without an open constituent composes
    the whole stack.

    Args:
      ids: of transitions, [B, T]; PAD and EOS push nothing.
      words: S, the most words of a row.
    """
    known = ids.cpu().numpy()
    pushes = known >= NUM_RESERVED
    stack = _walk(known)
    rows, times = pushes.nonzero()
    order = np.argsort(stack.height[rows, times], kind="stable")
    rows, times = rows[order], times[order]  # in the order of heights, [N]
    number, (sources, composed) = _vectors(known, stack, words)
    place = np.full((len(known), known.shape[1] + 1), -1)  # the last is that of no parent
    place[rows, times] = np.arange(len(rows))
    counts = np.bincount(stack.height[rows, times])[1:]
    ends = np.cumsum(counts)
    parents = place[rows, stack.parent[rows, times]]
    heights = []
    for i, (count, end) in enumerate(zip(counts.tolist(), ends.tolist(), strict=True)):
        below = parents[end - count : end] - (ends[i - 2] if i > 1 else 0) if i else parents[:0]
        heights.append(Height(count, _tensor(below, ids)))
    tops = np.pad(place[:, :-2], ((0, 0), (1, 0)), constant_values=-1) + 1
    return Structure(
        sources=_tensor(sources, ids),
        composed=[_tensor(members, ids) for members in composed],
        vectors=_tensor(number[rows, times], ids),
        heights=heights,
        tops=_tensor(np.where(pushes | (known > 0), tops, 0), ids),
        fronts=_tensor(stack.front, ids),
    )


def _tensor(values: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


def _walk(ids: _Ints) -> _Stack:
    """Goes through the transitions, all rows at a time."""
    size, length = ids.shape
    row = np.arange(size)
    found = _Stack(*(np.full((size, length), fill) for fill in (0, -1, 0, -1, 0, 0)))
    stack = np.full((size, length + 1), -1)  # transitions; the first is that of an empty stack
    depths = np.zeros_like(stack)
    opened = np.zeros_like(stack)  # heights at which constituents stand open
    height, count, front = (np.zeros(size, np.int64) for _ in range(3))
    places = np.arange(length + 1)
    for t in range(length):
        now = ids[:, t]
        reduces, opens = now == REDUCE_ID, now > REDUCE_ID
        pushes = now >= NUM_RESERVED
        found.front[:, t] = front
        depth = np.zeros(size, np.int64)
        below = height
        if reduces.any():
            base = np.where(count > 0, opened[row, np.maximum(count - 1, 0)], 1)
            inside = (places >= base[:, None]) & (places <= height[:, None]) & reduces[:, None]
            rows, at = inside.nonzero()
            members = stack[rows, at]
            found.owner[rows, members] = t
            found.order[rows, members] = at - base[rows]
            depth = np.where(reduces, np.where(inside, depths, 0).max(1) + 1, 0)
            below = np.where(reduces, np.minimum(base - 1, height), height)
            count = np.maximum(count - reduces, 0)
        found.parent[:, t] = np.where(pushes, stack[row, below], -1)
        height = np.where(pushes, below + 1, height)
        found.height[:, t] = np.where(pushes, height, 0)
        found.depth[:, t] = depth
        stack[row, height] = np.where(pushes, t, stack[row, height])
        depths[row, height] = np.where(pushes, depth, depths[row, height])
        opened[row, count] = np.where(opens, height, opened[row, count])
        count = count + opens
        front = front + (now == SHIFT_ID)
    return found


def _vectors(ids: _Ints, stack: _Stack, words: int) -> tuple[_Ints, tuple[_Ints, list[_Ints]]]:
    """Numbers the vectors; returns the number of each push's, the sources, what is composed."""
    length = ids.shape[1]
    number = np.zeros_like(ids)
    rows, times = ((ids >= NUM_RESERVED) & (stack.depth == 0)).nonzero()
    number[rows, times] = np.arange(1, len(rows) + 1)
    of_words = rows * (words + 1) + np.minimum(stack.front[rows, times], words)
    of_labels = ids.shape[0] * (words + 1) + rows * length + times
    sources = np.where(ids[rows, times] == SHIFT_ID, of_words, of_labels)
    start = len(rows) + 1
    by_depth = []
    for depth in range(1, int(stack.depth.max(initial=0)) + 1):
        rows, times = (stack.depth == depth).nonzero()
        number[rows, times] = start + np.arange(len(rows))
        by_depth.append((rows, times, start))
        start += len(rows)
    composed = []
    owned, at = (stack.owner >= 0).nonzero()
    owners = stack.owner[owned, at]
    depths = stack.depth[owned, owners]
    for depth, (rows, _, start) in enumerate(by_depth, start=1):
        here = depths == depth
        whose = number[owned[here], owners[here]] - start
        places = stack.order[owned[here], at[here]]
        members = np.zeros((len(rows), int(places.max(initial=0)) + 1), np.int64)
        members[whose, places] = number[owned[here], at[here]]
        composed.append(members)
    return number, (sources, composed)
