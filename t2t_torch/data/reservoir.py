"""So many of a stream of unknown length, each as likely as any other."""

from __future__ import annotations

import random
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Takes a stream, keeps a sample.  Vitter 1985, "Random sampling with a reservoir", R.

    Attributes:
      kept: the sample; all that came, in its order, as long as it is not full.

    Args:
      size: how many are kept; None for all.
      seed: of the drawing.
    """

    def __init__(self, size: int | None, *, seed: int) -> None:
        self.kept: list[T] = []
        self._size = size
        self._draw = random.Random(seed)
        self._seen = 0

    def place(self) -> int | None:
        """Returns where the next of the stream is to be put with `put`; None: it is not kept."""
        self._seen += 1
        if self._size is None or self._seen <= self._size:
            return self._seen - 1
        place = self._draw.randrange(self._seen)
        return place if place < self._size else None

    def put(self, place: int, item: T) -> None:
        """Keeps an item at its place."""
        if place == len(self.kept):
            self.kept.append(item)
        else:
            self.kept[place] = item
