"""What happened since the last report, kept on the device so that no step waits for a number."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.model import Loss
    from t2t_torch.train.task import Batch


def totals_of(loss: Loss, batch: Batch, paddings: Mapping[str, int]) -> Tensor:
    """Returns [loss, weight, positions that hold data, positions] of a micro-batch, [4] float64.

    Such totals add up over micro-batches and processes.

    Args:
      loss: of the batch.
      batch: on the device.
      paddings: what fills up each text-like sequence, `pipeline.lengths.paddings`; where there is
        none a position is a row.
    """
    device = loss.weight.device
    filled = torch.zeros([], dtype=torch.int64, device=device)
    for name, padding in paddings.items():
        filled += torch.count_nonzero(batch[name] != padding)
    positions = sum(batch[name].numel() for name in paddings)
    if not paddings:
        positions = len(next(iter(batch.values())))
        filled += positions
    totals = [loss.sum.detach(), loss.weight, filled, torch.full([], positions, device=device)]
    return torch.stack([total.to(torch.float64) for total in totals])


class Tally:
    """Sums over the steps since the last report; steps that were skipped are only counted.

    Args:
      device: where the losses are.
      tokens: counted by the run before.
      skipped: steps skipped by the run before.
      in_a_row: of these, the last ones.
    """

    def __init__(
        self, device: torch.device, tokens: int = 0, skipped: int = 0, in_a_row: int = 0
    ) -> None:
        self._device = device
        self._tokens = torch.full([], tokens, dtype=torch.float64, device=device)
        self._skipped = torch.full([], skipped, dtype=torch.int64, device=device)
        self._skipped_before = skipped  # at the last report
        self._in_a_row = torch.full([], in_a_row, dtype=torch.int64, device=device)
        self._on_the_way: tuple[Tensor, torch.cuda.Event] | None = None
        self._clear()

    def _clear(self) -> None:
        self._sums = torch.zeros(4, dtype=torch.float64, device=self._device)
        self._norm = torch.full([], math.nan, device=self._device)
        self._steps = 0
        self._seconds = 0.0
        self._since = time.monotonic()

    @property
    def steps(self) -> int:
        """Steps since the last report."""
        return self._steps

    def start_clock(self) -> None:
        """Training begins, or goes on after something else was done."""
        self._since = time.monotonic()

    def stop_clock(self) -> None:
        """Something else is done now that does not count for the speed of training."""
        self._seconds += time.monotonic() - self._since

    def add(self, totals: Tensor, norm: Tensor) -> None:
        """Adds a step.

        Args:
          totals: of `totals_of`, summed over the step, [4].
          norm: of the gradient, [].
        """
        finite = (norm + totals[0]).isfinite()
        totals = torch.where(finite, totals, 0.0)
        self._sums += totals
        self._tokens += totals[1]
        self._norm = torch.where(finite, norm, self._norm)
        self._steps += 1
        self._skipped += ~finite
        self._in_a_row = torch.where(finite, 0, self._in_a_row + 1)

    def skipped_in_a_row(self) -> int:
        """Returns how many steps were skipped, one after another, up to the last.

        On a GPU up to the one before: that is known without waiting for the device.
        """
        if self._device.type != "cuda":
            return int(self._in_a_row)
        before, event = self._on_the_way, torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._on_the_way = (self._in_a_row.to("cpu", non_blocking=True), event)
        event.record()
        if before is None:
            return 0
        before[1].synchronize()
        return int(before[0])

    def skipped(self) -> int:
        """Returns the steps skipped since the run began."""
        return int(self._skipped)

    def note(self, state: TrainerState) -> None:
        """Writes into a state what is counted since the run began; waits for the device."""
        state.tokens, state.skipped = int(self._tokens), self.skipped()
        state.skipped_in_a_row = int(self._in_a_row)

    def read(self) -> dict[str, float]:
        """Returns the report of the steps since the last one, and begins anew."""
        loss, weight, filled, positions = self._sums.tolist()
        nothing = math.nan if self._skipped_before < self.skipped() else 0.0
        self.stop_clock()
        seconds = max(self._seconds, 1e-9)
        report = {
            "loss": loss / weight if weight > 0 else nothing,
            "grad_norm": float(self._norm),
            "tokens_per_second": weight / seconds,
            "steps_per_second": self._steps / seconds,
            "padding_fraction": 1.0 - filled / max(positions, 1.0),
            "skipped_steps": float(self.skipped()),
        }
        self._clear()
        self._skipped_before = self.skipped()
        return report
