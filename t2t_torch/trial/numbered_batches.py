"""Batches of a user's loaders with their numbers, of which the order of the run is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from t2t_torch.pipeline.plan import PlanReport


class TrialBatch(NamedTuple):
    """What a user's loader has given.

    Attributes:
      number: of the global batch of the run, or of the evaluation.
      content: nested at will; of `evaluate_full_dataset` the loader itself.
    """

    number: int
    content: Any


class NumberedBatches:
    """The batches of one process with their numbers; a `TrainSource`, or an `EvalSource`.

    Attributes:
      source: of the batches.

    Args:
      source: of the batches.
      first: number of the first of them.
      step: from one number to the next.
    """

    def __init__(self, source: Any, first: int, step: int) -> None:
        self.source = source
        self._first = first
        self._step = step

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything that the order depends on."""
        return str(self.source.plan_fingerprint)

    @property
    def report(self) -> PlanReport:
        """What an epoch has."""
        found: PlanReport = self.source.report
        return found

    @property
    def resume_guarantee(self) -> str:
        """What holds when a run goes on from a checkpoint."""
        return str(self.source.resume_guarantee)

    def one_of_each_shape(self) -> Iterator[Any]:
        """Yields a batch of each number of records."""
        for batch in self.source.one_of_each_shape():
            yield TrialBatch(self._first, batch)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        number = self._first
        for batch in self.source:
            yield TrialBatch(number, batch)
            number += self._step
