"""Random numbers of the user's data code: seeded by the place in the run, and kept to themselves.

A user's samplers, datasets and collate functions draw from Python's, NumPy's or torch's global
generators.  They do so here under seeds of their own, and afterwards the generators are as they
were: what the data draws never moves dropout or whatever else the model draws.

The global generators belong to a process, not to a thread, so there is no isolation between
threads: what is here has to be called in the thread that trains, or in a process that does nothing
else (`fetching.py`).  Generators of a GPU are left alone: data code that draws from them is not
isolated.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from typing_extensions import Self

_States = tuple[Any, Any, Any]


def mix(seed: int, purpose: str, *places: int) -> int:
    """Returns a seed of 63 bits that depends on all of these and on nothing else.

    Args:
      seed: of the run.
      purpose: what the numbers are for: "order", "batch".
      places: where in the run: an epoch, a batch.
    """
    place = "/".join(map(str, (seed, purpose, *places)))
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch takes seeds below 2^63 on every device


def _states() -> _States:
    return random.getstate(), np.random.get_state(legacy=False), torch.default_generator.get_state()


def _restore(states: _States) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.default_generator.set_state(states[2])


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # it takes no more
    # Not torch.manual_seed: it seeds GPUs too.
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seeds Python's, NumPy's and torch's global generators; gives them back as they were.

    Args:
      seed: at least 0 and below 2^63.
    """
    before = _states()
    _seed(seed)
    try:
        yield
    finally:
        _restore(before)


class IsolatedStream:
    """As `isolated`, entered again and again: each time it goes on where it stopped.

    Args:
      seed: at least 0 and below 2^63.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._own: _States | None = None
        self._before: _States | None = None

    def __enter__(self) -> Self:
        self._before = _states()
        if self._own is None:
            _seed(self._seed)
        else:
            _restore(self._own)
        return self

    def __exit__(self, *_: object) -> None:
        self._own = _states()
        assert self._before is not None
        _restore(self._before)
