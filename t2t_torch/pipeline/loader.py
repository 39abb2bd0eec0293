"""Data loaders for training and evaluation, with prefetching.

The plan determines the order; torchdata's nodes prefetch.  Their state is not used: the position is
the number of global batches consumed, and nothing else is stored.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from torchdata import nodes

from t2t_torch.errors import T2TError
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.plan import ORDER_VERSION, EpochPlan, PlanReport
from t2t_torch.pipeline.reader import Examples
from t2t_torch.pipeline.streams import EvalStreams, StreamPlan
from t2t_torch.pipeline.training_split import MIXTURE_VERSION, MixedPlan, TrainingSplit
from t2t_torch.problem_types.mixture import MixingSchedule

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.plan import Batching


T = TypeVar("T")

_EVAL_SEED = 0  # batches of every evaluation of a split have the same order
_PREFETCH = 8  # batches that a single thread prefetches; several threads prefetch two each


class TrainBatches:
    """Endless shuffled batches of one process, from any position.

    Every iteration starts at `start`.  Rank r of w takes the global batches
    `start + r, start + r + w, ...`.

    Attributes:
      components: the data set, in a list of one.

    Args:
      shards: shards of the training split.
      features: features of the problem.
      batching: batching settings.
      seed: seed of the order.
      start: number of global batches already consumed by all processes.
      rank: rank of this process.
      world_size: number of processes.
      accumulate: batches of each process in an optimizer step.
      workers: threads that make batches, as in `read_ahead`.
      pin_memory: as in `read_ahead`.
    """

    def __init__(
        self,
        shards: Shards,
        features: Features,
        batching: Batching,
        *,
        seed: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        of_step = accumulate * world_size
        self.components = [
            TrainingSplit.of(shards, features, batching, seed=seed, batches_per_step=of_step)
        ]
        self._ahead = functools.partial(read_ahead, workers=workers, pin_memory=pin_memory)
        self._start = start + rank
        self._step = world_size

    @property
    def plan(self) -> EpochPlan | StreamPlan:
        """Rows of each batch."""
        return self.components[0].plan

    @property
    def report(self) -> PlanReport:
        """Statistics of kept, dropped and padded data."""
        return self.components[0].report

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything the order depends on."""
        return self.plan.fingerprint

    def rows_of(self, number: int) -> tuple[int, list[int]]:
        """Returns which data set a global batch is of, and its rows there, packed or examples."""
        return 0, [int(row) for row in self.plan.batch(number)]

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape, largest first."""
        return self.components[0].one_of_each_shape()

    def _work(self) -> Iterator[tuple[np.ndarray, int]]:
        index = self._start
        while True:
            yield self.components[0].work(index)
            index += self._step

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches for ever."""
        return self._ahead(self._work(), lambda work: self.components[0].collate(*work))


class MixedBatches:
    """Endless shuffled batches of several problems; each batch is of one problem.

    Args:
      components: data sets of the problems, with the same features.
      schedule: proportions of the problems by step.
      seed: seed of the order.
      batches_per_step: batches of all processes in an optimizer step.
      start: number of global batches already consumed by all processes.
      rank: rank of this process.
      world_size: number of processes.
      workers: threads that make batches, as in `read_ahead`.
      pin_memory: as in `read_ahead`.
    """

    def __init__(
        self,
        components: Sequence[TrainingSplit],
        schedule: MixingSchedule,
        *,
        seed: int,
        batches_per_step: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self.components = components
        self._ahead = functools.partial(read_ahead, workers=workers, pin_memory=pin_memory)
        self.plan = MixedPlan(schedule, seed=seed, batches_per_step=batches_per_step)
        self._start = start + rank
        self._step = world_size

    @property
    def report(self) -> PlanReport:
        """Statistics of kept, dropped and padded data, over an epoch of each problem."""
        shares = self.plan.schedule.at(np.zeros(1))[0].tolist()
        return PlanReport.mixed([component.report for component in self.components], shares)

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything the order depends on."""
        plan = self.plan
        parts = [component.plan.fingerprint for component in self.components]
        settings = json.dumps([parts, dataclasses.astuple(plan.schedule), plan.batches_per_step])
        version = f"{ORDER_VERSION}.{MIXTURE_VERSION}"
        return f"{version}-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    def rows_of(self, number: int) -> tuple[int, list[int]]:
        """Returns which data set a global batch is of, and its rows there, packed or examples."""
        problem, within = self.plan.locate(number)
        return problem, [int(row) for row in self.components[problem].plan.batch(within)]

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape, problem by problem."""
        return itertools.chain.from_iterable(c.one_of_each_shape() for c in self.components)

    def _work(self) -> Iterator[tuple[TrainingSplit, tuple[np.ndarray, int]]]:
        index = self._start
        while True:
            problem, number = self.plan.locate(index)
            component = self.components[problem]
            yield component, component.work(number)
            index += self._step

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches for ever."""
        return self._ahead(self._work(), lambda work: work[0].collate(*work[1]))


class EvalBatches:
    """One pass in a fixed order, not by length; only `eval_drop_long_sequences` drops examples.

    Attributes:
      cut: number of examples truncated to `Batching.bound`.
      total: number of batches of all processes.

    Args:
      shards: shards of the split.
      features: features of the problem.
      batching: batching settings.
      rank: rank of this process: it takes batches rank, rank + world_size, ...
      world_size: number of processes.
      workers: threads that make batches, as in `read_ahead`.
      pin_memory: as in `read_ahead`.
    """

    def __init__(
        self,
        shards: Shards,
        features: Features,
        batching: Batching,
        *,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._ahead = functools.partial(read_ahead, workers=workers, pin_memory=pin_memory)
        examples = Examples.of(shards, features, batching, bound=batching.bound)
        self.cut = examples.cut
        plan = EpochPlan(examples.lengths, batching.evaluation, source=examples.source, carry=False)
        batches = plan.in_order()
        self.total = len(batches)
        # Not in order of length: the first batches would have only short examples.
        shuffled = np.random.default_rng(_EVAL_SEED).permutation(self.total)[rank::world_size]
        self._batches = [batches[i] for i in shuffled]
        self._collate = Collator(examples.reader)

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""
        return self._ahead(iter(self._batches), self._collate)


class ChainedBatches:
    """Consecutive passes over several splits.

    Args:
      passes: batches of each split.
    """

    def __init__(self, passes: Sequence[EvalBatches | EvalStreams]) -> None:
        self._passes = passes

    @property
    def total(self) -> int:
        """Number of batches of all processes."""
        return sum(one.total for one in self._passes)

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return sum(map(len, self._passes))

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""
        return itertools.chain.from_iterable(self._passes)


def read_ahead(
    work: Iterator[T],
    make: Callable[[T], Batch],
    workers: int = 1,
    *,
    pin_memory: bool = False,
) -> Iterator[Batch]:
    """Yields the result of `make` for each item of `work`, in order, with prefetching.

    Uses threads instead of processes: numpy reads a batch from memory-mapped shards in
    milliseconds, and a worker process of torchdata would outlive a killed trainer.

    Args:
      work: arguments of `make`.
      make: makes a batch.
      workers: number of prefetching threads; 0 makes each batch on request.
      pin_memory: True to copy batches to pinned memory in the threads, for asynchronous copies to a
        GPU.

    Raises:
      T2TError: an error of `make`, raised when its batch is requested.
    """
    make_batch = _or_error(_pinning(make) if pin_memory else make)
    source = nodes.IterableWrapper(work)
    node: nodes.BaseNode[Batch | T2TError] = nodes.Mapper(source, make_batch)
    if workers == 1:
        node = nodes.Prefetcher(node, prefetch_factor=_PREFETCH)
    elif workers > 1:
        node = nodes.ParallelMapper(source, make_batch, num_workers=workers, in_order=True)
    node.reset()
    return map(_raised, node)


def _or_error(make: Callable[[T], Batch]) -> Callable[[T], Batch | T2TError]:
    """Returns T2TErrors as values: torchdata's threads would add tracebacks to their messages."""

    def make_or_error(work: T) -> Batch | T2TError:
        try:
            return make(work)
        except T2TError as error:
            return error

    return make_or_error


def _raised(batch: Batch | T2TError) -> Batch:
    if isinstance(batch, T2TError):
        raise batch
    return batch


def _pinning(make: Callable[[T], Batch]) -> Callable[[T], Batch]:
    def make_pinned(work: T) -> Batch:
        return {name: tensor.pin_memory() for name, tensor in make(work).items()}

    return make_pinned
