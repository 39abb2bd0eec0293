"""Bugs that other projects have had, put into this one on purpose.

`T2T_MUTATION=name` breaks the library for the tests of one session; `test_mutations.py` asserts
that tests fail then.  Nothing of it is in the library.  Numbers and sources are those of the list
in docs/explanation/reliability.md.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

import t2t_torch.train.estimator
from t2t_torch.distributed.process_group import Agreement
from t2t_torch.errors import CheckpointError
from t2t_torch.pipeline.loader import TrainBatches
from t2t_torch.pipeline.plan import EpochPlan
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.signals import StopRequest
from t2t_torch.train.estimator import Estimator

VARIABLE = "T2T_MUTATION"
Patch = pytest.MonkeyPatch


def introduce(patch: Patch) -> None:
    """Breaks the library as the environment says; without the variable does nothing."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTATIONS[name](patch)


def _starting_at(patch: Patch, start_of: Callable[..., int]) -> None:
    """Makes training batches begin at `start_of(plan, start, world_size)`."""
    init = TrainBatches.__init__

    def begin(self: Any, *args: Any, **options: Any) -> None:
        start, size = options.pop("start", 0), options.get("world_size", 1)
        init(self, *args, **options)
        first, step = self._numbers.args
        first += start_of(self.plan, start, size)
        self._numbers = functools.partial(itertools.count, first, step)

    patch.setattr(TrainBatches, "__init__", begin)


def _resumed(patch: Patch, change: Callable[[Any, int, int], None]) -> None:
    """Changes resumed training batches by `change(batches, first, batches_per_epoch)`."""
    init = TrainBatches.__init__

    def begin(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if options.get("start"):
            change(self, self._numbers.args[0], self.plan.batches_per_epoch)

    patch.setattr(TrainBatches, "__init__", begin)


def empty_epoch(patch: Patch) -> None:
    """1: after a checkpoint at the end of an epoch the next epoch is left out."""

    def start_of(plan: EpochPlan, start: int, size: int) -> int:
        at_end = start and start % plan.batches_per_epoch == 0
        return start + (plan.batches_per_epoch if at_end else 0)

    _starting_at(patch, start_of)


def position_not_loaded(patch: Patch) -> None:
    """2: the stream is made before the position is loaded, and starts again."""
    _starting_at(patch, lambda plan, start, size: 0)


def second_offset_lost(patch: Patch) -> None:
    """3: a position is counted from the last resume on, so that a second one goes astray."""
    starts = [0]

    def start_of(plan: EpochPlan, start: int, size: int) -> int:
        before = starts[-1] if start else 0
        starts.append(start)
        return start - before

    _starting_at(patch, start_of)


def skipped_in_each_epoch(patch: Patch) -> None:
    """3: what a resume skips is skipped in every epoch after it, too: epochs are tails."""

    def tails(batches: Any, first: int, size: int) -> None:
        numbers = batches._numbers
        batches._numbers = lambda: (n for n in numbers() if n % size >= first % size)

    _resumed(patch, tails)


def later_epochs_in_another_order(patch: Patch) -> None:
    """4: the epochs after a resumed one come in an order of their own."""

    def astray(batches: Any, first: int, size: int) -> None:
        batch = batches.plan.batch
        batches.plan.batch = lambda n: batch(n + size * (n // size > first // size))

    _resumed(patch, astray)


def position_of_one_process(patch: Patch) -> None:
    """5: what is stored is how many batches the first process consumed, not all."""
    sizes = [1]

    def start_of(plan: EpochPlan, start: int, size: int) -> int:
        before = sizes[-1]
        sizes.append(size)
        return start // before

    _starting_at(patch, start_of)


def epoch_not_restored(patch: Patch) -> None:
    """6: the place in the epoch is resumed, but not which epoch it is."""
    _starting_at(patch, lambda plan, start, size: start % plan.batches_per_epoch)


def from_scratch_over_a_broken_run(patch: Patch) -> None:
    """7: if the newest checkpoint is broken, the run silently starts again."""

    def newest(self: CheckpointDirectory, *, repair: bool = False) -> Any:
        found = self.list()
        try:
            if found:
                found[-1].verify()
        except CheckpointError:
            return None
        return found[-1] if found else None

    patch.setattr(CheckpointDirectory, "newest", newest)


def signals_seen_while_training_alone(patch: Patch) -> None:
    """8: evaluations and decodes do not look whether a signal has come."""
    patch.setattr(StopRequest, "__bool__", lambda self: False)
    patch.setattr(Estimator, "is_stop_requested", lambda self: False)


def signals_not_agreed(patch: Patch) -> None:
    """8: each process goes by its own signal."""
    patch.setattr(Agreement, "__call__", lambda self, *numbers: list(numbers))


def random_numbers_not_resumed(patch: Patch) -> None:
    """9: random numbers are a stream, and where it stands is not stored."""
    patch.setattr(t2t_torch.train.estimator, "seeded", lambda *_, **__: contextlib.nullcontext())


MUTATIONS: dict[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        empty_epoch,
        position_not_loaded,
        second_offset_lost,
        skipped_in_each_epoch,
        later_epochs_in_another_order,
        position_of_one_process,
        epoch_not_restored,
        from_scratch_over_a_broken_run,
        signals_seen_while_training_alone,
        signals_not_agreed,
        random_numbers_not_resumed,
    )
}
