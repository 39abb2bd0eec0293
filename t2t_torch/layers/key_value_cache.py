"""Keys and values of what a decode has read: room that grows, or room of one size.

A step that is compiled with fixed shapes, for CUDA graphs, reads a cache with room of one size,
whose length is a tensor: a number of Python would make a program of each position.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from t2t_torch.layers.relative_positions import distances

_FIRST_CAPACITY = 32  # positions a cache holds before it first grows


@runtime_checkable
class Growing(Protocol):
    """A `State` that needs more room with each step."""

    def fixed(self, capacity: int) -> Any:
        """Returns a state with room for so many positions, those before it included.

        The shapes of what its steps read and write stay the same till it is full.
        """


@dataclasses.dataclass
class KeyValueCache:
    """Keys and values of the positions decoded so far, of one layer.

    Time comes first in memory, so that a new position is written in place and hypotheses are
    reordered with one copy.

    Attributes:
      keys: [capacity, R, N, D].
      values: [capacity, R, N, D].
      length: positions filled.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def empty(cls, rows: int, num_heads: int, size: int, like: Tensor) -> KeyValueCache:
        """Returns the cache before the first position, of R rows.

        Args:
          rows: R.
          num_heads: N.
          size: D.
          like: on the device where it shall be.
        """
        nothing = like.new_empty(0, rows, num_heads, size)
        return cls(nothing, nothing)

    @property
    def rows(self) -> int:
        """R."""
        return self.keys.size(1)

    @property
    def there(self) -> Tensor | None:
        """Which positions of what `append` returns are filled, [t] bool; None: all."""
        return None

    def next_position(self) -> Tensor:
        """Returns where the next position is, from 0 on, [1] int64."""
        return torch.full((1,), self.length, device=self.keys.device)

    def distances(self, steps: int) -> Tensor:
        """Returns how far the positions that `append` returns are from the newest one, [1, t].

        Args:
          steps: t.
        """
        return distances(1, steps, self.keys.device)

    @property
    def filled(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the positions so far, [length, R, N, D]."""
        return self.keys[: self.length], self.values[: self.length]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds one position, [R, N, 1, D] each; returns all keys and values, [length, R, N, D]."""
        if torch.compiler.is_exporting():  # a graph has no room beyond what is filled
            self.keys = torch.cat([self.keys, k.squeeze(2).unsqueeze(0)])
            self.values = torch.cat([self.values, v.squeeze(2).unsqueeze(0)])
            self.length = self.keys.size(0)
            return self.keys, self.values
        if self.length == len(self.keys):
            capacity = max(_FIRST_CAPACITY, 2 * self.length)
            self.keys = _grown(self.keys, k, capacity)
            self.values = _grown(self.values, v, capacity)
        self.keys[self.length] = k.squeeze(2)
        self.values[self.length] = v.squeeze(2)
        self.length += 1
        return self.filled

    def reorder(self, index: Tensor) -> KeyValueCache:
        """Returns a cache whose row i is this one's row `index[i]`."""
        if torch.compiler.is_exporting():
            keys, values = (part.index_select(1, index) for part in (self.keys, self.values))
            return KeyValueCache(keys, values, self.length)
        return KeyValueCache(
            _selected(self.keys, index, self.length),
            _selected(self.values, index, self.length),
            self.length,
        )

    def expand(self, hypotheses: int) -> KeyValueCache:
        """Returns a cache in which each row stands `hypotheses` times, side by side."""
        rows = torch.arange(self.rows, device=self.keys.device)
        return self.reorder(rows.repeat_interleave(hypotheses))

    def fixed(self, capacity: int) -> FixedCache:
        """Returns a cache of the same positions, with room for `capacity` in all."""
        keys, values = (_with_room(part, capacity) for part in self.filled)
        return FixedCache(keys, values, capacity, self.next_position())


@dataclasses.dataclass
class FixedCache(KeyValueCache):
    """A cache whose room stays: what is asked of it are tensors of the same shapes at each step.

    What is not filled yet is zeros, and masked.  `length` is the capacity.

    Attributes:
      position: where the next position is, [1] int64.
    """

    position: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))

    @property
    def there(self) -> Tensor:
        """Which positions are filled, [capacity] bool."""
        return torch.arange(self.keys.size(0), device=self.keys.device) < self.position

    def next_position(self) -> Tensor:
        """Returns where the next position is, from 0 on, [1] int64."""
        return self.position

    def distances(self, steps: int) -> Tensor:
        """Returns how far all positions are from the newest one, [1, capacity]."""
        places = torch.arange(steps, device=self.keys.device)
        return (places - (self.position - 1))[None]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds one position, [R, N, 1, D] each; returns keys and values, [capacity, R, N, D].

        Nothing is written in place, as CUDA graphs ask.
        """
        at = (torch.arange(self.keys.size(0), device=k.device) == self.position)[
            :, None, None, None
        ]
        self.keys = torch.where(at, k.squeeze(2).to(self.keys.dtype), self.keys)
        self.values = torch.where(at, v.squeeze(2).to(self.values.dtype), self.values)
        self.position = self.position + 1
        return self.keys, self.values

    def reorder(self, index: Tensor) -> FixedCache:
        """Returns a cache whose row i is this one's row `index[i]`; nothing of it is this one's."""
        keys, values = (part.index_select(1, index) for part in (self.keys, self.values))
        return FixedCache(keys, values, self.length, self.position.clone())


def _with_room(old: Tensor, capacity: int) -> Tensor:
    """[length, R, N, D] -> [capacity, R, N, D], zeros after the old positions."""
    new = old.new_zeros(capacity, *old.shape[1:])
    new[: len(old)] = old
    return new


def _grown(old: Tensor, like: Tensor, capacity: int) -> Tensor:
    """Returns room for `capacity` positions, the old ones copied.  `like` is [R, N, 1, D]."""
    rows, heads, _, size = like.shape
    new = like.new_empty(capacity, rows, heads, size)
    new[: len(old)] = old
    return new


def _selected(old: Tensor, index: Tensor, length: int) -> Tensor:
    """Returns the filled positions of some rows.  [capacity, R, N, D] -> [capacity, R', N, D]."""
    new = old.new_empty(old.size(0), len(index), *old.shape[2:])
    torch.index_select(old[:length], 1, index, out=new[:length])
    return new
