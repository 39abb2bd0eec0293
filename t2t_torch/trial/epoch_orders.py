"""Order in which a user's loader is read, as lists of indices per epoch.

An epoch's order is the output of the loader's sampler with Python's, NumPy's and torch's generators
seeded by (seed, "order", epoch).  A sampler with its own state, such as a generator, continues from
epoch to epoch, so all preceding epochs are listed first, which takes milliseconds.  Copies of the
user's objects are advanced, never the objects themselves: the order does not depend on earlier use.

A user's samplers, datasets and collate functions draw from Python's, NumPy's or torch's global
generators.  Here they run under their own seeds, and the states of the generators are restored
afterwards: data code does not affect dropout or other random numbers of the model.  The global
generators belong to the process, so threads are not isolated: this code must run in the training
thread, or in a process that does nothing else (`batches.py`).  GPU generators are left alone.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import copy
import hashlib
import random
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils import data
from torch.utils.data.distributed import DistributedSampler

from t2t_torch.errors import TrialError

_States = tuple[Any, Any, Any]


def mix(seed: int, purpose: str, *places: int) -> int:
    """Returns a 63-bit seed derived from the arguments alone.

    Args:
      seed: seed of the run.
      purpose: purpose of the random numbers: "order", "batch".
      places: position in the run: an epoch, a batch.
    """
    place = "/".join(map(str, (seed, purpose, *places)))
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch accepts seeds below 2^63 on all devices


def _states() -> _States:
    return random.getstate(), np.random.get_state(legacy=False), torch.default_generator.get_state()


def _restore(states: _States) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.default_generator.set_state(states[2])


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # the maximum of numpy
    # Not torch.manual_seed, which also seeds GPUs.
    torch.default_generator.manual_seed(seed)


class IsolatedStream:
    """Context manager that gives the global generators their own state and restores it on exit.

    Re-entering continues the stream where it stopped.

    Args:
      seed: seed of at least 0 and below 2^63.
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


isolated = IsolatedStream
"""Context that seeds Python's, NumPy's and torch's global generators."""


Loader = Any
"""torch's `DataLoader`, PEDL's, or an object with `dataset`, `batch_sampler` and `collate_fn`."""

_KEPT = 3  # cached epochs: the current one, and those being prefetched
_MOST = 20_000_000  # maximum indices per epoch; a sampler that yields more is considered endless


def order_of_epoch(loader: Loader, seed: int, epoch: int) -> list[list[Any]]:
    """Returns the indices of each batch of an epoch, in training order.

    A hand-written loop can train on the same batches:

        for indices in order_of_epoch(loader, seed, epoch):
            inputs, labels = loader.collate_fn([loader.dataset[i] for i in indices])

    The loader itself also yields them under the same seed; `isolated` and `mix` are in
    `epoch_orders.py`.  A sampler with its own generator needs no seed.

        with isolated(mix(seed, "order", epoch)):
            batches = list(loader)

    Args:
      loader: loader of a data set with indices.
      seed: seed of the run, `reproducibility.experiment_seed`.
      epoch: epoch from 0.

    Raises:
      TrialError: see `EpochOrders`.
    """
    order = EpochOrders(loader, seed).order(epoch)
    return [order.indices(place) for place in range(len(order))]


def has_indices(loader: Loader) -> bool:
    """Returns True if a loader's order can be listed without reading data.

    This is False if the data set has no indices, or if the loader's class overrides `__iter__`.
    """
    if isinstance(loader, data.DataLoader):
        plain = type(loader).__iter__ is data.DataLoader.__iter__
        return plain and not isinstance(loader.dataset, data.IterableDataset)
    names = ("dataset", "batch_sampler", "collate_fn")
    return all(getattr(loader, name, None) is not None for name in names)


class EpochOrder:
    """The indices of an epoch's batches.

    Args:
      batches: output of a sampler, a list of indices per batch.
      most: maximum number of indices; more are considered endless.

    Raises:
      TrialError: there are more indices.
    """

    def __init__(self, batches: Iterator[list[Any]], most: int) -> None:
        # Flat integer array: lists of ten million batches would exhaust memory.
        self._numbers = array.array("q")
        self._ends = array.array("q")
        self._of_numpy: set[int] = set()
        self._others: dict[int, list[Any]] = {}  # batches with non-integer indices
        self.records = 0
        for place, batch in enumerate(batches):
            kinds = set(map(type, batch))
            if kinds <= {int} or kinds == {np.int64}:
                self._numbers.extend(batch)
                if np.int64 in kinds:
                    self._of_numpy.add(place)
            else:
                self._others[place] = batch
            self._ends.append(len(self._numbers))
            self.records += len(batch)
            if self.records > most:
                raise TrialError(
                    f"the sampler of the loader does not end: it has yielded {self.records:,} "
                    "indices for one epoch. Give it an end; the trainer begins it again for every "
                    "epoch."
                )

    def __len__(self) -> int:
        """Returns the number of batches."""
        return len(self._ends)

    def indices(self, place: int) -> list[Any]:
        """Returns the indices of a batch, in the sampler's order."""
        if place in self._others:
            return self._others[place]
        start = self._ends[place - 1] if place else 0
        numbers = self._numbers[start : self._ends[place]]
        return list(np.array(numbers, np.int64)) if place in self._of_numpy else numbers.tolist()

    @property
    def digest(self) -> str:
        """Hash of all indices in order."""
        digest = hashlib.sha256(self._ends.tobytes())
        digest.update(self._numbers.tobytes())
        for place, batch in self._others.items():
            digest.update(f"{place}:{batch!r}".encode())
        return digest.hexdigest()


class EpochOrders:
    """Orders of all epochs of a loader whose data set has indices.

    Attributes:
      repeatable: whether listing an epoch twice yields the same order.

    Args:
      loader: loader for which `has_indices` is True.
      seed: seed of the run.

    Raises:
      TrialError: the loader shards the data itself, or its sampler is endless or can be read only
        once.
    """

    def __init__(self, loader: Loader, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._collates = loader.batch_sampler is not None
        sampler = loader.batch_sampler if self._collates else loader.sampler
        self._original = sampler, getattr(loader, "generator", None)
        for each in _chain(sampler):
            if isinstance(each, DistributedSampler) and each.num_replicas > 1:
                raise TrialError(
                    "the loader has a DistributedSampler, and so divides the data among the "
                    "processes by itself. The trainer does that: leave the sampler out "
                    "(shuffle=True instead)."
                )
        self._stateless = _is_stateless(*self._original)
        self._starts = [0]  # first global batch of each listed epoch, and of the next one
        self._begin_again()
        first = self.order(0).digest
        self.repeatable = True
        if not self._stateless:
            self._begin_again()
            self.repeatable = self.order(0).digest == first

    def order(self, epoch: int) -> EpochOrder:
        """Returns the order of an epoch from 0, listing epochs as needed.

        Raises:
          TrialError: an epoch is empty.
        """
        if epoch in self._orders:
            return self._orders[epoch]
        if self._stateless:
            self._next = epoch
        elif epoch < self._next:
            self._begin_again()
        while self._next <= epoch:
            self._list_next()
        return self._orders[epoch]

    def place(self, number: int) -> tuple[int, int]:
        """Returns the epoch of a global batch and its index in the epoch, both from 0."""
        if self._stateless:
            return divmod(number, self._starts[1])
        while number >= self._starts[-1]:
            self.order(len(self._starts) - 1)
        epoch = bisect.bisect_right(self._starts, number) - 1
        return epoch, number - self._starts[epoch]

    def _begin_again(self) -> None:
        self._orders: dict[int, EpochOrder] = {}
        self._next = 0
        self._sampler, self._generator = self._original
        if not self._stateless:  # the data set and its contents are shared
            memo = {id(value): value for value in _held_by(self._loader.dataset)}
            with contextlib.suppress(Exception):  # objects that cannot be copied are used directly
                self._sampler, self._generator = copy.deepcopy(self._original, memo)

    def _list_next(self) -> None:
        """Lists the next epoch."""
        epoch = self._next
        set_epoch(self._sampler, epoch)
        # torch's DataLoader reads the sampler: it draws from the generators exactly as in a
        # hand-written loop.
        given: dict[str, Any] = {"batch_sampler": self._sampler, "collate_fn": as_it_is}
        if not self._collates:  # each sampler index is a batch of one item
            given = {"batch_size": None, "sampler": self._sampler, "collate_fn": lambda i: [i]}
        most = max(_MOST, 4 * (length_of(self._loader.dataset) or 0))
        with isolated(mix(self._seed, "order", epoch)):
            reader = data.DataLoader(_Indices(), generator=self._generator, **given)
            order = EpochOrder(iter(reader), most)
        if not len(order) and self._starts[-1]:  # earlier epochs had batches
            raise TrialError(
                "the sampler of the loader yields nothing the second time: it can be read only "
                "once. Give the loader an object whose __iter__ starts again, or a list."
            )
        if epoch == len(self._starts) - 1:
            self._starts.append(self._starts[-1] + len(order))
        self._orders[epoch] = order
        while len(self._orders) > _KEPT:
            del self._orders[next(iter(self._orders))]
        self._next = epoch + 1


class _Indices(data.Dataset[Any]):
    """Data set whose items are their own indices."""

    def __getitem__(self, index: Any) -> Any:
        return index


def as_it_is(batch: Any) -> Any:
    """Identity `collate_fn`."""
    return batch


def set_epoch(sampler: Any, epoch: int) -> None:
    """Calls `set_epoch` of a sampler and of its inner sampler, where defined."""
    for each in _chain(sampler):
        if callable(getattr(each, "set_epoch", None)):
            each.set_epoch(epoch)


def _chain(sampler: Any) -> list[Any]:
    """Returns a batch sampler and its inner sampler."""
    inner = getattr(sampler, "sampler", None)
    return [sampler] if inner is None else [sampler, inner]


def _is_stateless(sampler: Any, generator: Any) -> bool:
    """Returns True if an epoch's order is known to depend only on the global generators."""
    kinds = (
        data.BatchSampler,
        data.RandomSampler,
        data.SequentialSampler,
        data.SubsetRandomSampler,
        data.WeightedRandomSampler,
    )
    own = (getattr(each, "generator", None) for each in _chain(sampler))
    known = all(type(each) in kinds for each in _chain(sampler))
    return known and generator is None and all(each is None for each in own)


def length_of(value: Any) -> int | None:
    """Returns the length of a loader or a data set; None if it has none."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return None


def _held_by(dataset: Any) -> Iterator[Any]:
    """Yields a data set, those that it wraps or lists, and the data in their attributes."""
    seen: set[int] = set()
    pending = [dataset]
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, list | tuple):
            pending += [one for one in each if isinstance(one, data.Dataset)]
        elif isinstance(each, data.Dataset) or each is dataset:
            pending += [one for one in getattr(each, "__dict__", {}).values() if _holds_data(one)]


def _holds_data(value: Any) -> bool:
    return isinstance(value, data.Dataset | list | tuple | dict | Tensor | np.ndarray)
