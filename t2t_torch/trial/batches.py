"""The batches of a user's loaders: for training from any position on, and for evaluation.

Global batch k of a run is batch c of epoch e, in the order in which the user's loader lists them;
process r of w takes every w-th from its place on.  So a position is the number of batches that all
processes have consumed, and holds for any number of processes and of loader workers.  When an epoch
ends within a group of w batches, the next epoch begins in it: every process always has a batch.

Both sources have to be iterated over in the thread that trains (see `item_randomness.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from t2t_torch.errors import TrialError
from t2t_torch.pipeline.plan import PlanReport
from t2t_torch.trial.epoch_orders import EpochOrders, Loader, has_indices, size_of
from t2t_torch.trial.fetching import Place, fetched
from t2t_torch.trial.replayed import ReplayedLoader

ORDER_VERSION = 1
"""Stands in the fingerprint: a run goes on only with the order in which it began."""

_EVAL_SEED = 0  # every evaluation has the same batches in the same order


class TrialTrainBatches:
    """Endless training batches of one process, from any position; a `TrainSource`.

    Iterating starts at `start` anew each time.  Rank r of w takes the global batches
    `start + r, start + r + w, ...`.  The loader itself is not iterated over if its order can be
    listed: its sampler's copy is, and its data set and `collate_fn` are called here, or in as many
    worker processes as it asks for, which live as long as the iteration.

    Args:
      loader: the user's: torch's `DataLoader`, PEDL's, anything that has `dataset`,
        `batch_sampler` and `collate_fn`, or what else can be iterated over again and again.
      seed: of the order, and of what items draw.
      start: global batches already consumed by all processes.
      rank: of this process.
      world_size: processes.

    Raises:
      TrialError: the loader has no batch, divides the data by itself, or its sampler can be read
        only once, never ends, or has another order each time while there are several processes.
    """

    def __init__(
        self, loader: Loader, *, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        self._loader = loader
        self._seed = seed
        self._start = start + rank
        self._step = world_size
        self._orders: EpochOrders | None = None
        self._replay: ReplayedLoader | None = None
        if not has_indices(loader):
            self._replay = ReplayedLoader(loader, seed)
            return
        self._orders = EpochOrders(loader, seed)
        self._first = self._orders.order(0)
        if not len(self._first):
            raise TrialError(_empty("training", loader))
        if world_size > 1 and not self._orders.repeatable:
            raise TrialError(_UNREPEATABLE)

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches of all processes in the first epoch.

        Others may have more or fewer if the sampler decides so.  None if it is not known before it
        has been read.
        """
        if self._replay is not None:
            return self._replay.batches_per_epoch
        return len(self._first)

    @property
    def records_per_batch(self) -> float:
        """Items in a batch: the loader's `batch_size`, else the mean of the first epoch.

        1 if neither is known.
        """
        if self._replay is not None:
            return self._replay.records_per_batch
        size = getattr(self._loader, "batch_size", None)
        if isinstance(size, int) and size > 0:
            return float(size)
        return self._first.records / len(self._first)

    def epoch_of(self, batch_number: int) -> int:
        """Returns the epoch of a global batch of the run, both from 0.

        Where all has to be read again: of one that has been yielded, or the next of this process.
        """
        return self._place(batch_number)[0]

    def index_in_epoch(self, batch_number: int) -> int:
        """Returns the place of a global batch of the run within its epoch, from 0.

        Where all has to be read again: of one that has been yielded, or the next of this process.
        """
        return self._place(batch_number)[1]

    def _place(self, number: int) -> tuple[int, int]:
        known = self._orders or self._replay
        assert known is not None
        return known.place(number)

    @functools.cached_property
    def resume_guarantee(self) -> str:
        """What holds when a run goes on from a checkpoint: a sentence for the log."""
        if self._replay is not None:
            workers = getattr(self._loader, "num_workers", 0)
            return (
                "the loader's order cannot be listed, so all that was consumed is read again and "
                "thrown away; the same batches follow if the loader draws from the global random, "
                f"numpy and torch generators alone and num_workers stays {workers}"
            )
        assert self._orders is not None
        if not self._orders.repeatable:
            return (
                "not exact: the sampler has another order each time that it is asked. Let it draw "
                "from the global random, numpy or torch generator, or from one with a fixed seed"
            )
        return (
            "exact, with any number of loader workers; with any number of processes, too, if a "
            "step keeps its number of batches"
        )

    @functools.cached_property
    def plan_fingerprint(self) -> str:
        """A version and a hash of everything that the order depends on.

        It has the order of the whole first epoch in it, so that processes, or a run and the one
        that it goes on, that would not have the same order have different fingerprints.
        """
        if self._replay is not None:
            order = self._replay.fingerprint
        else:
            assert self._orders is not None
            order = self._first.digest if self._orders.repeatable else "unrepeatable"
        known = json.dumps([self._seed, type(_data_set(self._loader)).__qualname__, order])
        return f"trial{ORDER_VERSION}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"

    @property
    def report(self) -> PlanReport:
        """What an epoch has; its tokens are records, as nothing is known of what is in them.

        Where the epoch's length is not known, `batches` is 0 and `mixed_tokens` has the records in
        a batch, as for a mixture, which has no epochs either.
        """
        examples = size_of(_data_set(self._loader))
        batches, mean = self.batches_per_epoch or 0, self.records_per_batch
        records = self._first.records if self._replay is None else round(batches * mean)
        return PlanReport(
            examples=examples or records,
            kept=records,
            too_long=0,
            too_short=0,
            batches=batches,
            tokens=records,
            padding_fraction=0.0,
            mixed_tokens=0.0 if batches else mean,
        )

    def one_of_each_shape(self) -> Iterator[Any]:
        """Yields a batch of each number of records that batches of the first epoch have.

        Large ones first.  Of what else batches' shapes may differ in nothing is known.
        """
        if self._replay is not None:
            yield from self._first_read()
            return
        first: dict[int, int] = {}
        for place, size in enumerate(self._first.sizes):
            first.setdefault(size, place)
        places = [first[size] for size in sorted(first, reverse=True)]
        chosen = ((0, place, self._first.indices(place)) for place in places)
        yield from fetched(self._loader, chosen, self._seed, "batch")

    def _first_read(self) -> Iterator[Any]:
        assert self._replay is not None
        for batch in self._replay.epoch(0):
            yield batch
            return

    def _places(self) -> Iterator[Place]:
        assert self._orders is not None
        number = self._start
        while True:
            epoch, place = self._orders.place(number)
            yield epoch, place, self._orders.order(epoch).indices(place)
            number += self._step

    def __iter__(self) -> Iterator[Any]:
        """Yields batches for ever, as the loader's `collate_fn` makes them.

        Raises:
          TrialError: an epoch has no batch.
        """
        if self._replay is not None:
            return self._replay.run(self._start, self._step)
        return fetched(self._loader, self._places(), self._seed, "batch")


class TrialEvalBatches:
    """One pass over a user's loader, for one process of several; an `EvalSource`.

    Process r takes the batches of which the number leaves r when divided by the number of
    processes: each batch once, nothing doubled and nothing filled up, so that processes may have
    different numbers of batches, or none.  Each pass has the same batches in the same order, and
    what items draw is the same, also if the loader shuffles.

    Args:
      loader: as for `TrialTrainBatches`.
      rank: of this process.
      world_size: processes.

    Raises:
      TrialError: the loader has no batch (one of which the order cannot be listed: when it is
        read), or as `TrialTrainBatches`.
    """

    def __init__(self, loader: Loader, *, rank: int = 0, world_size: int = 1) -> None:
        self._loader = loader
        self._rank = rank
        self._step = world_size
        self._replay: ReplayedLoader | None = None
        if not has_indices(loader):
            self._replay = ReplayedLoader(loader, _EVAL_SEED)
            return
        orders = EpochOrders(loader, _EVAL_SEED)
        self._order = orders.order(0)
        if not len(self._order):
            raise TrialError(_empty("validation", loader))
        if world_size > 1 and not orders.repeatable:
            raise TrialError(_UNREPEATABLE)

    @functools.cached_property
    def total(self) -> int:
        """Batches of all processes; where nothing tells it, they are read once and counted."""
        if self._replay is None:
            return len(self._order)
        known = self._replay.batches_per_epoch
        return sum(1 for _ in self._replay.epoch(0)) if known is None else known

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return len(range(self._rank, self.total, self._step))

    def __iter__(self) -> Iterator[Any]:
        """Yields each batch once, as the loader's `collate_fn` makes it."""
        if self._replay is not None:
            return self._read(self._replay)
        mine = range(self._rank, len(self._order), self._step)
        places = ((0, place, self._order.indices(place)) for place in mine)
        return fetched(self._loader, places, _EVAL_SEED, "evaluation")

    def _read(self, replay: ReplayedLoader) -> Iterator[Any]:
        number = -1
        for number, batch in enumerate(replay.epoch(0)):
            if number % self._step == self._rank:
                yield batch
        if number < 0:
            raise TrialError(_empty("validation", self._loader))


_UNREPEATABLE = (
    "the loader's sampler has another order each time that it is asked, so several processes "
    "cannot share it: batches would be lost or doubled. Let it draw from the global random, numpy "
    "or torch generator, or from a generator of its own with a fixed seed."
)


def _data_set(loader: Loader) -> Any:
    return getattr(loader, "dataset", None)


def _empty(which: str, loader: Loader) -> str:
    examples = size_of(_data_set(loader))
    why = f"its data set has {examples:,} items"
    if getattr(loader, "drop_last", False) and examples:
        why += f", fewer than batch_size={loader.batch_size}, and drop_last=True drops them"
    return (
        f"the {which} loader has no batch: {why}. make_data_loaders should return loaders of data "
        "sets that are not empty."
    )
