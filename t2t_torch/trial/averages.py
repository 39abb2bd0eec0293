"""A trial's metrics over an evaluation: the mean over batches, element by element."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.answers import as_array, check_metrics
from t2t_torch.trial.reducer import Reducer

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World

_EXTREME = {Reducer.MAX: torch.maximum, Reducer.MIN: torch.minimum}

Layout = list[tuple[str, list[int]]]
"""Of every metric its name and its shape, sorted by name."""


class MetricAverages:
    """Sums of metrics of any shape, and the number of batches, which add over processes.

    Attributes:
      sums: [1 + elements] float64: the number of batches, then the sums of all metrics, one after
        another.  Changed in place; of one length in all processes once `agree` was called.

    Args:
      what: the method that the metrics are from, for messages.
      reducers: how batches are joined: of all metrics, or by name; the others are averaged.
    """

    def __init__(
        self,
        what: str = "validation_metrics",
        reducers: Reducer | Mapping[str, Reducer] = Reducer.AVG,
    ) -> None:
        self.sums = torch.zeros(1, dtype=torch.float64)
        self._what = what
        self._reducers = reducers
        self._leads = True
        self._layout: Layout | None = None
        self._batches = 0  # of this process

    def update(self, metrics: Any, batch: object = None) -> None:
        """Adds a batch's metrics; nothing is asked of the batch itself.

        Raises:
          TrialError: they are no metrics, or have other names or shapes than the batches before.
        """
        values = {
            name: as_array(value) for name, value in check_metrics(metrics, self._what).items()
        }
        layout = [(name, list(values[name].shape)) for name in sorted(values)]
        if self._layout is None:
            self._lay_out(layout)
        elif layout != self._layout:
            raise TrialError(self._difference(layout))
        flat = [np.ones(1), *(values[name].reshape(-1) for name in sorted(values))]
        self._add(torch.from_numpy(np.concatenate(flat)))
        self._batches += 1

    def _add(self, batch: Tensor) -> None:
        """Joins a batch's numbers with those before it."""
        before = self.sums.clone()
        self.sums += batch
        for part, kind in self._extremes() if self._batches else ():
            self.sums[part] = _EXTREME[kind](before[part], batch[part])

    def _extremes(self) -> list[tuple[slice, Reducer]]:
        """Returns where in `sums` the metrics are of which the largest or smallest is meant."""
        found, begin = [], 1
        for name, shape in self._layout or ():
            end = begin + int(np.prod(shape))
            if self._kind(name) in _EXTREME:
                found.append((slice(begin, end), self._kind(name)))
            begin = end
        return found

    def _kind(self, name: str) -> Reducer:
        if isinstance(self._reducers, Reducer):
            return self._reducers
        return self._reducers.get(name, Reducer.AVG)

    def _share_extremes(self, told: list[Any]) -> None:
        """Leaves in the first process the extremes of all, and zeros in others: then sums add."""
        values = [torch.tensor(one, dtype=torch.float64) for one in told if one is not None]
        for part, kind in self._extremes():
            joined = values[0][part]
            for other in values[1:]:
                joined = _EXTREME[kind](joined, other[part])
            self.sums[part] = joined if self._leads else 0.0

    def agree(self, world: World) -> None:
        """Lets all processes know the metrics' names and shapes; all must call it, once at the end.

        A process that had no batch learns them from the others.

        Raises:
          TrialError: processes have metrics of other names or shapes.
        """
        if world.size == 1:
            return
        channel = SideChannel(world.rank, world.size, world.decisions)
        told = [json.loads(text) for text in channel.exchange(json.dumps(self._layout))]
        self._leads = world.leads
        known = [
            (rank, [(name, shape) for name, shape in layout])
            for rank, layout in enumerate(told)
            if layout is not None
        ]
        for rank, layout in known[1:]:
            first, agreed = known[0]
            if layout != agreed:
                raise TrialError(
                    f"{self._what} returned {_shown(agreed)} in process {first}, but "
                    f"{_shown(layout)} in process {rank}. Return the same names with the same "
                    "shapes for every batch."
                )
        if known and self._layout is None:
            self._lay_out(known[0][1])
        if self._extremes():
            own = json.dumps(self.sums.tolist() if self._batches else None)
            self._share_extremes([json.loads(text) for text in channel.exchange(own)])

    def result(self) -> dict[str, float]:
        """Returns the mean of every metric that is one number.

        Raises:
          TrialError: there was no batch.
        """
        return {name: mean.item() for name, mean in self._means().items() if mean.size == 1}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Returns the means of all other metrics, each of the shape that it was given in.

        Raises:
          TrialError: there was no batch.
        """
        return {name: mean for name, mean in self._means().items() if mean.size != 1}

    def _means(self) -> dict[str, NDArray[np.float64]]:
        count = self.sums[0].item()
        if self._layout is None or not count:
            raise TrialError(
                "The validation loader gave no batch, so there is nothing to average. "
                "make_data_loaders returns (train, valid): look at the second."
            )
        sizes = [int(np.prod(shape)) for _, shape in self._layout]
        parts = torch.split(self.sums[1:], sizes)
        return {
            name: part.numpy().reshape(shape) / (count if self._kind(name) is Reducer.AVG else 1)
            for (name, shape), part in zip(self._layout, parts, strict=True)
        }

    def _lay_out(self, layout: Layout) -> None:
        self._layout = layout
        elements = sum(int(np.prod(shape)) for _, shape in layout)
        self.sums = torch.zeros(1 + elements, dtype=torch.float64)

    def _difference(self, layout: Layout) -> str:
        """Says how a batch's metrics differ from those before."""
        before, now = dict(self._layout or ()), dict(layout)
        if before.keys() != now.keys():
            return (
                f"{self._what} returned {', '.join(now)} for batch {self._batches}, but "
                f"{', '.join(before)} for those before it. Return the same names for every batch."
            )
        name = next(name for name in now if now[name] != before[name])
        return (
            f"{self._what}: {name!r} has shape {now[name]} in batch {self._batches}, but "
            f"{before[name]} in those before it. A mean over batches needs one shape: reduce it "
            "over the examples of the batch."
        )


def _shown(layout: Layout) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in layout)
