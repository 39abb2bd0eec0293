"""What happened since the last report, kept on the device so that no step waits for a number."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2t_torch.checkpoint.trainer_state import SinceReport, TrainerState

if TYPE_CHECKING:
    from t2t_torch.model import Loss
    from t2t_torch.train.batch import Batch


def totals_of(loss: Loss, batch: Batch, paddings: Mapping[str, int]) -> Tensor:
    """Returns [loss, weight, positions that hold data, positions] of a micro-batch, [4] float64.

    Such totals add up over micro-batches and processes.

    Args:
      loss: of the batch.
      batch: on the device.
      paddings: what fills up each text-like sequence, `pipeline.lengths.paddings`; where there is
        none in the batch a position is a row.
    """
    device = loss.weight.device
    paddings = {name: paddings[name] for name in paddings if name in batch}
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

    What is counted goes into checkpoints: reports are those of a run that never stopped.

    Args:
      device: where the losses are.
      state: where the run stands.
    """

    def __init__(self, device: torch.device, state: TrainerState | None = None) -> None:
        state = state or TrainerState()
        since = state.since_report
        self._device = device
        self._tokens = torch.full([], state.tokens, dtype=torch.float64, device=device)
        self._skipped = torch.full([], state.skipped, dtype=torch.int64, device=device)
        self._in_a_row = torch.full([], state.skipped_in_a_row, dtype=torch.int64, device=device)
        self._on_the_way: tuple[Tensor, torch.cuda.Event] | None = None
        self._sums = torch.tensor(since.sums, dtype=torch.float64, device=device)
        norm = math.nan if since.grad_norm is None else since.grad_norm
        self._norm = torch.full([], norm, device=device)
        self._skipped_before = state.skipped - since.skipped  # at the last report
        self._steps = since.steps
        self._not_timed = since.sums[1], since.steps  # weight and steps of a process before
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def steps(self) -> int:
        """Steps since the last report."""
        return self._steps

    def start_clock(self) -> None:
        """Training begins, or goes on after something else was done."""
        self._since = time.monotonic()

    def stop_clock(self) -> None:
        """Something else is done now that does not count for the speed of training."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = None

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
        if not self.is_late:
            return int(self._in_a_row)
        before, event = self._on_the_way, torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Pinned: else the copy itself would wait for the device.
        copy = torch.empty([], dtype=torch.int64, pin_memory=True)
        self._on_the_way = (copy.copy_(self._in_a_row, non_blocking=True), event)
        event.record()
        if before is None:
            return 0
        before[1].synchronize()
        return int(before[0])

    @property
    def is_late(self) -> bool:
        """Whether `skipped_in_a_row` tells of the step before."""
        return self._device.type == "cuda"

    def skipped(self) -> int:
        """Returns the steps skipped since the run began."""
        return int(self._skipped)

    def note(self, state: TrainerState) -> None:
        """Writes into a state what is counted; waits for the device."""
        state.tokens, state.skipped = float(self._tokens), self.skipped()
        state.skipped_in_a_row = int(self._in_a_row)
        norm = float(self._norm)
        state.since_report = SinceReport(
            sums=tuple(self._sums.tolist()),
            grad_norm=norm if math.isfinite(norm) else None,
            steps=self._steps,
            skipped=state.skipped - self._skipped_before,
        )

    def read(self) -> dict[str, float]:
        """Returns the report of the steps since the last one, and begins anew."""
        loss, weight, filled, positions = self._sums.tolist()
        skipped, running = self.skipped(), self._since is not None
        nothing = math.nan if self._skipped_before < skipped else 0.0
        self.stop_clock()
        seconds = max(self._seconds, 1e-9)
        report = {
            "loss": loss / weight if weight > 0 else nothing,
            "grad_norm": float(self._norm),
            "tokens_per_second": (weight - self._not_timed[0]) / seconds,
            "steps_per_second": (self._steps - self._not_timed[1]) / seconds,
            "padding_fraction": 1.0 - filled / max(positions, 1.0),
            "skipped_steps": float(skipped),
        }
        self._sums = torch.zeros_like(self._sums)
        self._norm = torch.full([], math.nan, device=self._device)
        self._skipped_before, self._steps, self._seconds = skipped, 0, 0.0
        self._not_timed = 0.0, 0
        if running:
            self.start_clock()
        return report
