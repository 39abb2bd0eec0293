"""What a trial's training tells: the means of its losses and metrics since the last report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.errors import TrialError

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World


class TrainingReport:
    """Means over batches, each metric's by itself; kept on the device, so that no step waits.

    What has more than one number is told by its mean.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # [2] float64: sum, batches

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds a batch's losses and metrics, by name."""
        for name, value in values.items():
            mean = _mean(value)
            one = torch.stack([mean, torch.ones_like(mean)])
            known = self._sums.get(name)
            self._sums[name] = one if known is None else known.to(one.device) + one

    def sums(self, world: World) -> dict[str, list[float]]:
        """Returns [sum, batches] of each, over all processes; all must call it.

        Raises:
          TrialError: the processes have metrics of other names.
        """
        names = sorted(self._sums)
        if not names and world.size == 1:
            return {}
        device = world.device
        known = world.maximum(len(names))
        if world.size > 1 and -world.maximum(-len(names)) != known:
            raise TrialError(
                "training_metrics or losses returned metrics of other names in other processes. "
                "Return the same names for every batch."
            )
        stacked = [self._sums[name].to(device) for name in names]
        total = world.sum(torch.stack(stacked)) if stacked else torch.zeros(0, 2)
        return dict(zip(names, total.tolist(), strict=True))

    def read(self, world: World) -> dict[str, float]:
        """Returns the means over all processes, and begins anew; all must call it."""
        sums = self.sums(world)
        self._sums = {}
        return {name: total / count for name, (total, count) in sums.items()}

    def restore(self, sums: Mapping[str, list[float]]) -> None:
        """Takes back what `sums` returned, in one process of several."""
        self._sums = {k: torch.tensor(v, dtype=torch.float64) for k, v in sums.items()}


def _mean(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64).mean()
    return torch.tensor(float(np.mean(np.asarray(value, np.float64))), dtype=torch.float64)
