"""Data loaders for training and evaluation, with prefetching; splits as data sets of PyTorch.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch.utils import data
from torchdata import nodes

from t2t_torch import registry
from t2t_torch.data.shards import Shards
from t2t_torch.errors import T2TError, UsageError
from t2t_torch.features.feature import count_positions
from t2t_torch.mode import Split
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.plan import ORDER_VERSION, Batching, EpochPlan, PlanReport
from t2t_torch.pipeline.reader import Examples, restore
from t2t_torch.pipeline.training_split import MIXTURE_VERSION, MixedPlan, TrainingSplit
from t2t_torch.problem_types.mixture import MixingSchedule
from t2t_torch.remote import resolve
from t2t_torch.reports.column_statistics import StoredColumn

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem


T = TypeVar("T")

_EVAL_SEED = 0  # batches of every evaluation of a split have the same order
_PREFETCH = 8  # batches that a single thread prefetches; several threads prefetch two each


class MixedBatches:
    """Endless shuffled batches of one process, from any position; each is of one data set.

    Every iteration starts at `start`.  Rank r of w takes the global batches
    `start + r, start + r + w, ...`.

    Attributes:
      components: data sets of the problems.
      plan: a `MixedPlan`; of one data set the plan of its rows.

    Args:
      components: data sets of the problems, with the same features.
      schedule: proportions of the problems by step.
      seed: seed of the order.
      batches_per_step: batches of all processes in an optimizer step.
      run: `start`, the number of global batches already consumed by all processes, and `rank`,
        `world_size`, `workers` and `pin_memory` as of `EvalBatches`.
    """

    plan: Any

    def __init__(
        self,
        components: Sequence[TrainingSplit],
        schedule: MixingSchedule,
        *,
        seed: int,
        batches_per_step: int,
        **run: Any,
    ) -> None:
        schedule = schedule.of_sizes([component.plan.batches_per_epoch for component in components])
        self.plan = MixedPlan(schedule, seed=seed, batches_per_step=batches_per_step)
        self._open(components, **run)

    def _open(
        self,
        components: Sequence[TrainingSplit],
        *,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self.components = components
        self._numbers = functools.partial(itertools.count, start + rank, world_size)
        self._ahead = functools.partial(read_ahead, workers=workers, pin_memory=pin_memory)

    @property
    def report(self) -> PlanReport:
        """Statistics of kept, dropped and padded data, over an epoch of each problem."""
        shares = self.plan.schedule.at(np.zeros(1))[0].tolist()
        return PlanReport.mixed([component.report for component in self.components], shares)

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything the order depends on."""
        plan: MixedPlan = self.plan
        parts = [component.plan.fingerprint for component in self.components]
        settings = json.dumps([parts, dataclasses.astuple(plan.schedule), plan.batches_per_step])
        version = f"{ORDER_VERSION}.{MIXTURE_VERSION}"
        return f"{version}-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    def locate(self, number: int) -> tuple[int, int]:
        """Returns the data set of a global batch, and the number of its earlier batches."""
        place: tuple[int, int] = self.plan.locate(number)
        return place

    def rows_of(self, number: int) -> tuple[int, list[int]]:
        """Returns which data set a global batch is of, and its rows there, packed or examples."""
        problem, within = self.locate(number)
        return problem, [int(row) for row in self.components[problem].plan.batch(within)]

    def batch(self, number: int) -> Batch:
        """Makes a global batch again, apart from the iteration."""
        problem, within = self.locate(number)
        component = self.components[problem]
        return component.collate(*component.work(within))

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape, data set by data set, largest first."""
        return itertools.chain.from_iterable(c.one_of_each_shape() for c in self.components)

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches for ever."""
        places = map(self.locate, self._numbers())
        parts = ((self.components[problem], number) for problem, number in places)
        work = ((part, part.work(number)) for part, number in parts)
        return self._ahead(work, lambda one: one[0].collate(*one[1]))


class TrainBatches(MixedBatches):
    """Endless shuffled batches of one data set.

    Args:
      shards: shards of the training split.
      features: features of the problem.
      batching: batching settings.
      seed: seed of the order.
      world_size: number of processes.
      batches_per_step: batches of all processes in an optimizer step; 0: one of each process.
      run: as of `MixedBatches`.
    """

    def __init__(
        self,
        shards: Shards,
        features: Features,
        batching: Batching,
        *,
        seed: int,
        world_size: int = 1,
        batches_per_step: int = 0,
        **run: Any,
    ) -> None:
        of_step = batches_per_step or world_size
        split = TrainingSplit.of(shards, features, batching, seed=seed, batches_per_step=of_step)
        self.plan = split.plan
        self._open([split], world_size=world_size, **run)

    @property
    def report(self) -> PlanReport:
        """Statistics of kept, dropped and padded data."""
        return self.components[0].report

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything the order depends on."""
        fingerprint: str = self.plan.fingerprint
        return fingerprint

    def locate(self, number: int) -> tuple[int, int]:
        """Returns the only data set, and the number."""
        return 0, number


class EvalBatches:
    """One pass in a fixed order, not by length; only `eval_drop_long_sequences` drops examples.

    Attributes:
      cut: number of examples truncated to `Batching.bound`.
      total: number of batches of all processes.

    Args:
      shards: shards of the split.
      features: features of the problem.
      batching: batching settings.
      rows: which rows are read, [rows]; None: all.
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
        rows: npt.NDArray[np.bool_] | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._ahead = functools.partial(read_ahead, workers=workers, pin_memory=pin_memory)
        examples = Examples.of(shards, features, batching, bound=batching.bound)
        self.cut = examples.cut
        batches = EpochPlan(
            examples.lengths,
            batching.evaluation,
            source=examples.source,
            carry=False,
            counts=None if rows is None else rows.astype(np.int64),
        ).in_order()
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


def read_ahead(
    work: Iterator[T], make: Callable[[T], Batch], workers: int = 1, *, pin_memory: bool = False
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

    def make_or_error(one: T) -> Batch | T2TError:
        """Returns T2TErrors as values: torchdata's threads would change their messages."""
        try:
            batch = make(one)
        except T2TError as error:
            return error
        return (
            {name: tensor.pin_memory() for name, tensor in batch.items()} if pin_memory else batch
        )

    source = nodes.IterableWrapper(work)
    node: nodes.BaseNode[Batch | T2TError] = nodes.Mapper(source, make_or_error)
    if workers == 1:
        node = nodes.Prefetcher(node, prefetch_factor=_PREFETCH)
    elif workers > 1:
        node = nodes.ParallelMapper(source, make_or_error, num_workers=workers, in_order=True)
    node.reset()
    return map(_raised, node)


def _raised(batch: Batch | T2TError) -> Batch:
    if isinstance(batch, T2TError):
        raise batch
    return batch


@dataclasses.dataclass(frozen=True)
class OnePass:
    """Batches of one pass; each iteration makes them again.

    Args:
      count: number of batches of this process.
      make: returns an iterator of at least that many batches.
      total: number of batches of all processes.
    """

    count: int
    make: Callable[[], Iterator[Batch]]
    total: int = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""
        return itertools.islice(self.make(), self.count)


class Dataset(data.Dataset[dict[str, Any]]):
    """The rows of a split; `dataset[i]` is a dict of decoded values.

        >>> dataset = t2t.Dataset("translate_multi30k_ende", "data", "dev")
        >>> len(dataset), dataset[0]
        (1014, {'inputs': 'A group of men are loading cotton onto a truck', 'targets': ...})

    Args:
      problem: a problem, or its name.
      data_dir: directory of the generated data.
      split: "train", "dev" or "test".

    Attributes:
      problem: the problem.
      features: its features, by name.
      split: the split.

    Raises:
      DataError: the data was not generated, or a file is missing, truncated or altered.
      RegistryError: there is no such problem.
      UsageError: there is no such split.
    """

    def __init__(
        self, problem: Problem | str, data_dir: str | Path, split: Split | str = Split.TRAIN
    ) -> None:
        data_dir = resolve(data_dir)
        registry.add_declarations(data_dir)
        self.problem = registry.problem(problem) if isinstance(problem, str) else problem
        if isinstance(split, str) and split not in {one.value for one in Split}:
            names = ", ".join(repr(one.value) for one in Split)
            raise UsageError(f"there is no split {split!r}; splits are {names}.")
        self.split = Split(split)
        self._shards = Shards.open(data_dir, self.problem.dataset_name, self.split)
        self.features = self.problem.features(data_dir)
        columns = self.features.columns
        self._columns = {
            name: StoredColumn(self._shards.column(columns.get(name, name)))
            for name in self.features.stored
        }

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns the values of a row, by feature: texts, labels, numbers, pictures.

        Raises:
          IndexError: there is no such row.
        """
        row = self.ids(index)
        return {
            name: restore(feature, name, self.features, row)
            for name, feature in self.features.stored.items()
        }

    def ids(self, index: int) -> dict[str, Any]:
        """Returns the stored numbers of a row, by feature, each [length].

        Raises:
          IndexError: there is no such row.
        """
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return {name: column.row(place) for name, column in self._columns.items()}

    def batches(
        self, hparams: HParams | str, *, shuffle: bool | None = None, seed: int = 1, epoch: int = 0
    ) -> OnePass:
        """Returns the batches of one pass, each a dict of tensors for a model.

        Rows of similar length are batched together; `batch_size` counts tokens for problems of
        texts, and examples for others.

        Args:
          hparams: hyperparameters, or the name of a set.
          shuffle: True for the order of training, which differs in each epoch and leaves out rows
            that are longer than `max_length`; False for a fixed order of all rows.  Default: True
            for the training split.
          seed: seed of the order.
          epoch: number of the pass, from 0.

        Raises:
          DataError: no row fits.
          HParamsError: hparams do not fit the features.
        """
        chosen = registry.hparams(hparams) if isinstance(hparams, str) else hparams
        batching = Batching.of(self.problem, chosen)
        if shuffle is None:
            shuffle = self.split is Split.TRAIN
        if not shuffle:
            batching = dataclasses.replace(batching, longest_row=max(self._lengths(), default=0))
            fixed = EvalBatches(self._shards, self.features, batching)
            return OnePass(len(fixed), fixed.__iter__)
        shuffled = TrainBatches(self._shards, self.features, batching, seed=seed)
        count = shuffled.plan.batches_per_epoch

        def make() -> Iterator[Batch]:
            start = epoch * count
            return iter(TrainBatches(self._shards, self.features, batching, seed=seed, start=start))

        return OnePass(count, make)

    def _lengths(self) -> Iterator[int]:
        columns = self.features.columns
        for name, feature in self.features.all.items():
            stored = self._shards.lengths[columns.get(name, name)]
            if len(stored):
                yield int(count_positions(feature, stored).max())
