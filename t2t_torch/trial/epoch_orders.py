"""Order and batches of a user's loaders: resumable for training, one pass for evaluation.

An epoch's order is the output of the loader's sampler with Python's, NumPy's and torch's generators
seeded by (seed, "order", epoch).  A sampler with its own state, such as a generator, continues from
epoch to epoch, so all preceding epochs are listed first, which takes milliseconds.  Copies of the
user's objects are advanced, never the objects themselves: the order does not depend on earlier use.

A user's samplers, datasets and collate functions draw from Python's, NumPy's or torch's global
generators.  Here they run under their own seeds, and the states of the generators are restored
afterwards: data code does not affect dropout or other random numbers of the model.  The global
generators belong to the process, so threads are not isolated: this code must run in the training
thread, or in a process that does nothing else.  GPU generators are left alone.

Global batch k of a run is batch c of epoch e, in the order of the user's loader; process r of w
takes every w-th batch from its offset.  A position is therefore the number of batches consumed by
all processes, and is valid for any number of processes and loader workers.  If an epoch ends within
a group of w batches, the next epoch fills the group: every process always has a batch.

A loader is read by the indices of its batches, or sequentially from the start.  Prefetching uses
torch's `DataLoader`, with the worker count of the user's; with `num_workers=0` batches are created
on demand.
"""

from __future__ import annotations

import array
import atexit
import bisect
import contextlib
import copy
import functools
import hashlib
import itertools
import json
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils import data
from torch.utils.data.distributed import DistributedSampler

from t2t_torch.errors import TrialError
from t2t_torch.pipeline.plan import PlanReport


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
        self._other: tuple[Any, ...] | None = (
            None  # inside, that of the caller; outside, of the stream
        )

    def __enter__(self) -> Self:
        self._swap()
        return self

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        other, torchs = self._other, torch.default_generator
        self._other = random.getstate(), np.random.get_state(legacy=False), torchs.get_state()
        if other is None:
            _seed(self._seed)
        else:
            random.setstate(other[0])
            np.random.set_state(other[1])
            torchs.set_state(other[2])


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
            kinds = (data.Dataset, list, tuple, dict, Tensor, np.ndarray)
            held = getattr(each, "__dict__", {}).values()
            pending += [one for one in held if isinstance(one, kinds)]


Place = tuple[int, int, list[Any]]
"""An epoch, the index of a batch in it, and the batch's sample indices."""


class Fetcher(data.Dataset[Any]):
    """Data set of whole batches, indexed by place.

    Each batch is created under its own seed (seed, purpose, epoch, place): random augmentation is
    identical in every process and after any number of resumes.

    Args:
      loader: loader with the data set and `collate_fn`.
      seed: seed of the run.
      purpose: "batch" in training; another value yields different random numbers.
    """

    def __init__(self, loader: Loader, seed: int, purpose: str) -> None:
        self.dataset = loader.dataset
        self._collate = loader.collate_fn
        self._collates = loader.batch_sampler is not None
        self._seed = seed
        self._purpose = purpose

    def __getitem__(self, place: Place) -> Any:
        """Returns a batch."""
        epoch, number, indices = place
        with isolated(mix(self._seed, self._purpose, epoch, number)):
            if not self._collates:
                return self._collate(self.dataset[indices[0]])
            if several := getattr(self.dataset, "__getitems__", None):
                return self._collate(several(indices))
            return self._collate([self.dataset[index] for index in indices])


def fetched(loader: Loader, places: Iterable[Place], seed: int, purpose: str) -> Iterator[Any]:
    """Yields the batches at the given places, in order.

    Args:
      loader: user's loader; its workers, start method, pinning and timeout are kept.  Training
        workers live as long as the training, evaluation workers as long as the evaluation.
      places: places of the batches; workers prefetch a few.
      seed: seed of the run.
      purpose: see `Fetcher`.
    """
    workers = getattr(loader, "num_workers", 0)
    own = ("multiprocessing_context", "prefetch_factor", "timeout", "worker_init_fn")
    options = {name: getattr(loader, name) for name in own if workers and hasattr(loader, name)}
    if workers:
        options["worker_init_fn"] = functools.partial(_start_worker, options.get("worker_init_fn"))
    reader: data.DataLoader[Any] = data.DataLoader(
        Fetcher(loader, seed, purpose),
        batch_size=None,
        sampler=places,
        num_workers=workers,
        collate_fn=as_it_is,
        pin_memory=getattr(loader, "pin_memory", False),
        # Keeps the base seed of the workers from being drawn from the model's generator.
        generator=torch.Generator().manual_seed(mix(seed, "workers")),
        **options,
    )
    return _read(reader)


def _read(reader: data.DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader and shuts its workers down at the end."""
    batches = iter(reader)
    end = getattr(batches, "_shutdown_workers", None)
    if end is None:  # no workers
        yield from batches
        return
    # Explicit shutdown, also after an error and at exit: the garbage collector would close the
    # queues before the workers are notified, and joining each worker would time out after seconds.
    atexit.register(end)
    try:
        yield from batches
    finally:
        atexit.unregister(end)
        end()


def _start_worker(init: Callable[[int], None] | None, worker: int) -> None:
    """Initializes a worker process.

    A stop signal often reaches all processes of a group.  The trainer then saves and shuts its
    workers down; it needs them to finish the current step.

    Args:
      init: the user's `worker_init_fn`.
      worker: number of the worker.
    """
    info: Any = data.get_worker_info()
    # User code that calls `get_worker_info` gets the user's data set, not the wrapper.
    object.__setattr__(info, "dataset", info.dataset.dataset)  # the class is frozen
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        # The second signal of its kind terminates the process.
        signal.signal(number, lambda again, _: signal.signal(again, signal.SIG_DFL))
    if init is not None:
        init(worker)


class ListedLoader(EpochOrders):
    """Loader with a listable order: batches are created from their indices.

    The loader itself is not iterated: a copy of its sampler is, and its data set and `collate_fn`
    are called in this process or in the loader's number of worker processes.

    Attributes:
      batches_per_epoch: number of batches in the first epoch.
      records: number of records in the first epoch.
      records_per_batch: the loader's `batch_size`, or the mean over the first epoch.
      place: function from a global batch number to its epoch and index in the epoch, from 0.
      fingerprint: hash of the order of the whole first epoch.

    Args:
      loader: user's loader.
      seed: seed of the run.
      what: name of the loader, for error messages.
      world_size: number of processes.

    Raises:
      TrialError: there is no batch, or several processes cannot share the sampler.
    """

    def __init__(self, loader: Loader, seed: int, what: str, world_size: int) -> None:
        super().__init__(loader, seed)
        self._first = self.order(0)
        if not len(self._first):
            raise TrialError(
                f"the {what} loader has no batch: its data set has "
                f"{length_of(_data_set(loader)) or 0:,} items, of which drop_last=True drops those "
                "that fill no batch. make_data_loaders should return loaders of data sets that "
                "are not empty."
            )
        self.batches_per_epoch = len(self._first)
        self.records = self._first.records
        self.records_per_batch = _batch_size(loader) or self.records / len(self._first)
        self.fingerprint = self._first.digest if self.repeatable else "unrepeatable"
        if world_size > 1 and not self.repeatable:
            raise TrialError(
                "several processes cannot share the loader, batches would be lost or doubled: it "
                "is not exact: the sampler has another order each time it is iterated. Let it draw "
                "from the global random, numpy or torch generator, or from one with a fixed seed."
            )

    def run(self, start: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of all epochs, starting at global batch `start`."""
        places = (
            (epoch, place, self.order(epoch).indices(place))
            for epoch, place in map(self.place, itertools.count(start, step))
        )
        return fetched(self._loader, places, self._seed, "batch")

    def once(self, rank: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of the first epoch, starting at batch `rank`."""
        places = range(rank, len(self._first), step)
        chosen = ((0, place, self._first.indices(place)) for place in places)
        return fetched(self._loader, chosen, self._seed, "evaluation")


class ReplayedLoader:
    """Loader that can only be iterated.

    An epoch is read with the global generators seeded by (seed, "order", epoch).  A position is
    reached by reading and discarding all preceding batches.  Attributes and arguments are those of
    `ListedLoader`; `batches_per_epoch` is None if the loader has no length, and places are known
    only for the yielded batches and the next `step` ones.
    """

    def __init__(self, loader: Loader, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._starts = [0]  # the first batch of each started epoch
        self.batches_per_epoch = length_of(loader) or None
        self.records_per_batch = _batch_size(loader) or 1.0
        self.records = round((self.batches_per_epoch or 0) * self.records_per_batch)
        names = [type(each).__qualname__ for each in (loader, _data_set(loader))]
        workers = getattr(loader, "num_workers", 0)
        known = [seed, *names, workers, self.batches_per_epoch, self.records_per_batch]
        self.fingerprint = hashlib.sha256(repr(known).encode()).hexdigest()

    def place(self, number: int) -> tuple[int, int]:
        """Returns the epoch of a global batch and its index in the epoch, both from 0."""
        epoch = bisect.bisect_right(self._starts, number) - 1
        return epoch, number - self._starts[epoch]

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Yields the batches of an epoch, counted from 0."""
        stream = IsolatedStream(mix(self._seed, "order", epoch))
        with stream:
            set_epoch(_data_set(self._loader), epoch)
            set_epoch(getattr(self._loader, "sampler", None), epoch)
            batches = iter(self._loader)
        while True:
            with stream:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    def run(self, start: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of all epochs, starting at global batch `start`.

        Reads one batch ahead, to know the epoch of the next batch.

        Raises:
          TrialError: an epoch is empty.
        """
        number = epoch = 0
        wanted = start
        ahead: list[Any] = []
        while True:
            began = number
            if epoch == len(self._starts):
                self._starts.append(began)
            for batch in self.epoch(epoch):
                number += 1
                if number - 1 == wanted:
                    wanted += step
                    yield from ahead
                    ahead = [batch]
            if number == began:
                yield from ahead  # yields the batch read ahead
                raise TrialError(
                    f"the training loader ({type(self._loader).__name__}) yields nothing in epoch "
                    f"{epoch + 1}. Its __iter__ has to start again for every epoch, and its data "
                    "set must not be empty."
                )
            epoch += 1

    def once(self, rank: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of the first epoch, starting at batch `rank`."""
        return itertools.islice(self.epoch(0), rank, None, step)


def _opened(loader: Loader, seed: int, what: str, world_size: int) -> ListedLoader | ReplayedLoader:
    if has_indices(loader):
        return ListedLoader(loader, seed, what, world_size)
    return ReplayedLoader(loader, seed)


def _batch_size(loader: Loader) -> float | None:
    size = getattr(loader, "batch_size", None)
    return float(size) if isinstance(size, int) and size > 0 else None


def _data_set(loader: Loader) -> Any:
    return getattr(loader, "dataset", None)


ORDER_VERSION = 1
"""Part of the fingerprint: a run resumes only with the order version that it started with."""

_EVAL_SEED = 0  # makes all evaluations identical


class TrialBatch(NamedTuple):
    """Batch of a user's loader.

    Attributes:
      number: number of the global batch in the run or in the evaluation.
      content: arbitrarily nested batch; for `evaluate_full_dataset` the loader itself.
    """

    number: int
    content: Any


class TrialTrainBatches:
    """Endless training batches of one process, from any position.

    A `TrainSource` of a model that is neither compiled nor sharded, for which alone a source yields
    a batch of each shape.

    Each iteration starts at `start`.  Rank r of w takes the global batches `start + r, start + r +
    w, ...`.

    Args:
      loader: user's loader: torch's `DataLoader`, PEDL's, an object with `dataset`, `batch_sampler`
        and `collate_fn`, or any iterable that can be iterated repeatedly.
      seed: seed of the order and of random augmentation.
      start: number of global batches already consumed by all processes.
      rank: rank of this process.
      world_size: number of processes.

    Attributes:
      batches_per_epoch: number of global batches in the first epoch; later epochs may differ if the
        sampler does.  None if unknown before the epoch has been read.
      records_per_batch: the loader's `batch_size`, or the mean over the first epoch; 1 if neither
        is known.
      place: function from a global batch to its epoch and its index in the epoch, all counted from
        0; for a loader without indices: only for yielded batches and the next one of this process.
      plan_fingerprint: version and hash of everything that determines the order, also of the whole
        first epoch: processes with different orders, or a resumed run with a different order, have
        different fingerprints.

    Raises:
      TrialError: the loader is empty, shards the data itself, or its sampler can be read only once,
        never ends, or is not repeatable while there are several processes.
    """

    def __init__(
        self, loader: Loader, *, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        self._loader = loader
        self._start = start + rank
        self._step = world_size
        self._order = _opened(loader, seed, "training", world_size)
        self.batches_per_epoch = self._order.batches_per_epoch
        self.records_per_batch = self._order.records_per_batch
        self.place = self._order.place
        name = type(_data_set(loader)).__qualname__
        known = json.dumps([seed, name, self._order.fingerprint])
        digest = hashlib.sha256(known.encode()).hexdigest()
        self.plan_fingerprint = f"trial{ORDER_VERSION}-{digest[:16]}"

    @property
    def report(self) -> PlanReport:
        """Statistics of an epoch; records count as tokens, as the batch content is opaque.

        If the length of the epoch is unknown, `batches` is 0 and `mixed_tokens` is the number of
        records per batch, as for a mixture, which has no epochs either.
        """
        batches, records = self.batches_per_epoch or 0, self._order.records
        return PlanReport(
            examples=length_of(_data_set(self._loader)) or records,
            kept=records,
            too_long=0,
            too_short=0,
            batches=batches,
            tokens=records,
            padding_fraction=0.0,
            mixed_tokens=0.0 if batches else self.records_per_batch,
        )

    def __iter__(self) -> Iterator[TrialBatch]:
        """Yields endless batches as created by the loader's `collate_fn`.

        Raises:
          TrialError: an epoch is empty.
        """
        return _numbered(self._order.run(self._start, self._step), self._start, self._step)


class TrialEvalBatches:
    """One pass over a user's loader in one of several processes; an `EvalSource`.

    Process r takes the batches whose number modulo the number of processes is r.  Each batch occurs
    once, without duplication or padding, so the number of batches may differ between processes and
    may be zero.  All passes have the same batches in the same order with the same random
    augmentation, even if the loader shuffles.

    Args:
      loader: see `TrialTrainBatches`.
      rank: rank of this process.
      world_size: number of processes.

    Raises:
      TrialError: the loader is empty (if its order can be listed), or see `TrialTrainBatches`.
    """

    def __init__(self, loader: Loader, *, rank: int = 0, world_size: int = 1) -> None:
        self._rank = rank
        self._step = world_size
        self._order = _opened(loader, _EVAL_SEED, "validation", world_size)

    @functools.cached_property
    def total(self) -> int:
        """Number of batches of all processes; a loader without a length is read to count them."""
        known = self._order.batches_per_epoch
        return sum(1 for _ in self._order.once(0, 1)) if known is None else known

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return len(range(self._rank, self.total, self._step))

    def __iter__(self) -> Iterator[TrialBatch]:
        """Yields each batch once, as created by the loader's `collate_fn`."""
        return _numbered(self._order.once(self._rank, self._step), self._rank, self._step)


def _numbered(batches: Iterator[Any], first: int, step: int) -> Iterator[TrialBatch]:
    for number, batch in zip(itertools.count(first, step), batches, strict=False):
        yield TrialBatch(number, batch)
