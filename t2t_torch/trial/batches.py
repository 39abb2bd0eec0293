"""Batches of a user's loaders: resumable for training, one pass for evaluation.

Global batch k of a run is batch c of epoch e, in the order of the user's loader; process r of w
takes every w-th batch from its offset.  A position is therefore the number of batches consumed by
all processes, and is valid for any number of processes and loader workers.  If an epoch ends within
a group of w batches, the next epoch fills the group: every process always has a batch.

A loader is read by the indices of its batches, or sequentially from the start.  Prefetching uses
torch's `DataLoader`, with the worker count of the user's; with `num_workers=0` batches are created
on demand.  Threads are not used: data code draws from global generators, which threads would share
with the model.  Both sources must be iterated in the training thread (see `epoch_orders.py`).
"""

from __future__ import annotations

import atexit
import bisect
import functools
import hashlib
import itertools
import json
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils import data

from t2t_torch.errors import TrialError
from t2t_torch.pipeline.plan import PlanReport
from t2t_torch.trial.epoch_orders import (
    EpochOrders,
    IsolatedStream,
    Loader,
    as_it_is,
    has_indices,
    isolated,
    length_of,
    mix,
    set_epoch,
)

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
            several = getattr(self.dataset, "__getitems__", None)
            if several:
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
        init = functools.partial(_start_worker, options.get("worker_init_fn"))
        options["worker_init_fn"] = init
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
        signal.signal(number, _ignore_once)
    if init is not None:
        init(worker)


def _ignore_once(number: int, frame: FrameType | None) -> None:
    """Ignores the first signal; the second of its kind terminates the process."""
    signal.signal(number, signal.SIG_DFL)


class ListedLoader:
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
        self._loader = loader
        self._seed = seed
        self._orders = EpochOrders(loader, seed)
        self._first = self._orders.order(0)
        if not len(self._first):
            raise TrialError(
                f"the {what} loader has no batch: its data set has "
                f"{length_of(_data_set(loader)) or 0:,} items, of which drop_last=True drops those "
                "that fill no batch. make_data_loaders should return loaders of data sets that "
                "are not empty."
            )
        self.place = self._orders.place
        self.batches_per_epoch = len(self._first)
        self.records = self._first.records
        self.records_per_batch = _batch_size(loader) or self.records / len(self._first)
        self.fingerprint = self._first.digest if self._orders.repeatable else "unrepeatable"
        if world_size > 1 and not self._orders.repeatable:
            raise TrialError(
                "several processes cannot share the loader, batches would be lost or doubled: it "
                "is not exact: the sampler has another order each time it is iterated. Let it draw "
                "from the global random, numpy or torch generator, or from one with a fixed seed."
            )

    def one_of_each_shape(self) -> Iterator[Any]:
        """Yields one batch per distinct number of records in the first epoch, largest first."""
        first: dict[int, int] = {}
        for place in range(len(self._first)):
            first.setdefault(len(self._first.indices(place)), place)
        yield from self._fetched((first[size] for size in sorted(first, reverse=True)), "batch")

    def run(self, start: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of all epochs, starting at global batch `start`."""
        numbers = itertools.count(start, step)
        places = (
            (epoch, place, self._orders.order(epoch).indices(place))
            for epoch, place in map(self.place, numbers)
        )
        return fetched(self._loader, places, self._seed, "batch")

    def once(self, rank: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of the first epoch, starting at batch `rank`."""
        return self._fetched(range(rank, len(self._first), step), "evaluation")

    def _fetched(self, places: Iterable[int], purpose: str) -> Iterator[Any]:
        chosen = ((0, place, self._first.indices(place)) for place in places)
        return fetched(self._loader, chosen, self._seed, purpose)


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

    def one_of_each_shape(self) -> Iterator[Any]:
        """Yields the first batch."""
        return itertools.islice(self.epoch(0), 1)

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
    """Endless training batches of one process, from any position; a `TrainSource`.

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

    def one_of_each_shape(self) -> Iterator[TrialBatch]:
        """Yields one batch per distinct number of records in the first epoch.

        The largest come first.  Other differences in shape are unknown.
        """
        return (TrialBatch(self._start, batch) for batch in self._order.one_of_each_shape())

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
        if isinstance(self._order, ReplayedLoader) and self._order.batches_per_epoch is None:
            return sum(1 for _ in self._order.epoch(0))
        return self._order.batches_per_epoch or 0

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return len(range(self._rank, self.total, self._step))

    def __iter__(self) -> Iterator[TrialBatch]:
        """Yields each batch once, as created by the loader's `collate_fn`."""
        return _numbered(self._order.once(self._rank, self._step), self._rank, self._step)


def _numbered(batches: Iterator[Any], first: int, step: int) -> Iterator[TrialBatch]:
    for number, batch in zip(itertools.count(first, step), batches, strict=False):
        yield TrialBatch(number, batch)
