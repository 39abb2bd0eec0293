"""What a trial's training tells: the means of its losses and metrics since the last report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from absl import logging
from torch import Tensor

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.trial.answers import as_array

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World


class TrainingReport:
    """Means over batches, element by element; kept on the device, so that no step waits.

    A metric whose shape differs between batches is reported as the mean of all its numbers.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # [elements + 1] float64: the sums, and the batches
        self._shapes: dict[str, list[int]] = {}

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds a batch's losses and metrics, by name."""
        for name, value in values.items():
            found = value if isinstance(value, Tensor) else torch.from_numpy(as_array(value))
            shape, flat = list(found.shape), found.detach().to(torch.float64).reshape(-1)
            if shape != self._shapes.setdefault(name, shape):
                self._flatten(name)
                flat = flat.mean(0, keepdim=True)
            one = torch.cat([flat, flat.new_ones(1)])
            known = self._sums.get(name)
            self._sums[name] = one if known is None else known.to(one.device) + one

    def _flatten(self, name: str) -> None:
        """Reports one number of a metric from now on."""
        if self._shapes[name]:
            logging.log_first_n(
                logging.WARNING,
                "%s has other shapes in other batches of training: the mean of its numbers is "
                "reported.",
                1,
                name,
            )
        self._shapes[name] = []
        if name in self._sums:
            sums = self._sums[name]
            self._sums[name] = torch.stack([sums[:-1].mean(), sums[-1]])

    def sums(self, world: World) -> dict[str, Tensor]:
        """Returns the sums and the number of batches of each, over all processes; all must call it.

        A process that has not met a name has nothing to add to it.
        """
        told = [self._shapes]
        if world.size > 1:
            channel = SideChannel(world.rank, world.size, world.decisions)
            told = [json.loads(text) for text in channel.exchange(json.dumps(self._shapes))]
        names = sorted({name for shapes in told for name in shapes})
        for name in names:
            shapes = [shapes[name] for shapes in told if name in shapes]
            self._shapes.setdefault(name, shapes[0])
            if any(shape != shapes[0] for shape in shapes):
                self._flatten(name)
        if not names:
            return {}
        sizes = [math.prod(self._shapes[name]) + 1 for name in names]
        parts = [
            self._sums.get(name, torch.zeros(size, dtype=torch.float64)).to(world.device)
            for name, size in zip(names, sizes, strict=True)
        ]
        total = world.sum(torch.cat(parts))
        return dict(zip(names, torch.split(total.cpu(), sizes), strict=True))

    def read(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means over all processes, and begins anew; all must call it.

        Returns:
          the metrics that are one number, and those that are arrays.
        """
        sums = self.sums(world)
        means = {n: total[:-1] / total[-1] for n, total in sums.items() if total[-1]}
        numbers = {name: mean.item() for name, mean in means.items() if len(mean) == 1}
        arrays = {
            name: mean.reshape(self._shapes[name]) for name, mean in means.items() if len(mean) != 1
        }
        self._sums, self._shapes = {}, {}
        return numbers, arrays

    def state(self, world: World) -> dict[str, Any]:
        """Returns `sums` as JSON can say them; what is no finite number as a text."""
        told: dict[str, Any] = {}
        for name, sums in self.sums(world).items():
            flat = [v if math.isfinite(v) else str(v) for v in sums.tolist()]
            shape = self._shapes[name]
            told[name] = {"shape": shape, "sums": flat} if shape else flat
        return told

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned, in one process of several."""
        for name, known in state.items():
            flat = known["sums"] if isinstance(known, dict) else known
            self._shapes[name] = known["shape"] if isinstance(known, dict) else []
            self._sums[name] = torch.tensor([float(v) for v in flat], dtype=torch.float64)
