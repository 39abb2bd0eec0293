"""What a trial's training tells: the means of its losses and metrics since the last report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.compute.side_channel import SideChannel

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

        A process that has not met a name has nothing to add to it.
        """
        names = set(self._sums)
        if world.size > 1:
            channel = SideChannel(world.rank, world.size, world.decisions)
            names.update(*map(json.loads, channel.exchange(json.dumps(sorted(names)))))
        if not names:
            return {}
        nothing = torch.zeros(2, dtype=torch.float64)
        stacked = [self._sums.get(name, nothing).to(world.device) for name in sorted(names)]
        total = world.sum(torch.stack(stacked))
        return dict(zip(sorted(names), total.tolist(), strict=True))

    def read(self, world: World) -> dict[str, float]:
        """Returns the means over all processes, and begins anew; all must call it."""
        sums = self.sums(world)
        self._sums = {}
        return {name: total / count for name, (total, count) in sums.items() if count}

    def state(self, world: World) -> dict[str, list[float | str]]:
        """Returns `sums` as JSON can say them; what is no finite number as a text."""
        return {
            name: [value if math.isfinite(value) else str(value) for value in pair]
            for name, pair in self.sums(world).items()
        }

    def restore(self, state: Mapping[str, list[float | str]]) -> None:
        """Takes back what `state` returned, in one process of several."""
        self._sums = {
            name: torch.tensor([float(value) for value in pair], dtype=torch.float64)
            for name, pair in state.items()
        }


def _mean(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64).mean()
    return torch.tensor(float(np.mean(np.asarray(value, np.float64))), dtype=torch.float64)
