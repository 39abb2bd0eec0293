"""Which checkpoints are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.errors import CheckpointError

_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept when another one has been written.

    The one just written and the best one always are.

    Attributes:
      last: newest ones; 0 keeps all.
      best: best ones.
      every: steps; those of its multiples are kept; 0: none for that reason.
      every_n_hours: of training; the first of each such period is kept, not of the period in which
        training began; 0: none for that reason.
    """

    last: int = 0
    best: int = 0
    every: int = 0
    every_n_hours: float = 0.0

    def superfluous(
        self, checkpoints: Sequence[Checkpoint], written: Checkpoint, ranked: Sequence[int]
    ) -> list[Checkpoint]:
        """Returns those to delete.

        Args:
          checkpoints: all, oldest first.
          written: the newest that is known to be whole.
          ranked: steps, the best first.
        """
        if not self.last:
            return []
        there = {checkpoint.step for checkpoint in checkpoints}
        best = [step for step in ranked if step in there][: max(self.best, 1)]
        kept = {written.step, *best, *self._of_hours(checkpoints)}
        return [
            checkpoint
            for checkpoint in checkpoints[: -self.last]
            if checkpoint.step not in kept
            and not (self.every and checkpoint.step % self.every == 0)
        ]

    def _of_hours(self, checkpoints: Sequence[Checkpoint]) -> set[int]:
        """Returns the steps of the first checkpoint of each period after the first."""
        if not self.every_n_hours:
            return set()
        first: dict[int, int] = {}
        for checkpoint in checkpoints:
            try:
                seconds = checkpoint.trainer_state().seconds
            except (CheckpointError, OSError):  # a broken one is kept for no reason of its own
                continue
            period = int(seconds // (self.every_n_hours * _SECONDS))
            if period:
                first.setdefault(period, checkpoint.step)
        return set(first.values())
