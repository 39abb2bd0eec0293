"""A trial's metrics over an evaluation: the mean over batches, element by element."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.answers import check_metrics

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World

Layout = list[tuple[str, list[int]]]
"""Of every metric its name and its shape, sorted by name."""


class MetricAverages:
    """Sums of metrics of any shape, and the number of batches, which add over processes.

    Attributes:
      sums: [1 + elements] float64: the number of batches, then the sums of all metrics, one after
        another.  Changed in place; of one length in all processes once `agree` was called.

    Args:
      what: the method that the metrics are from, for messages.
    """

    def __init__(self, what: str = "validation_metrics") -> None:
        self.sums = torch.zeros(1, dtype=torch.float64)
        self._what = what
        self._layout: Layout | None = None
        self._batches = 0  # of this process

    def update(self, metrics: Any, batch: object = None) -> None:
        """Adds a batch's metrics; nothing is asked of the batch itself.

        Raises:
          TrialError: they are no metrics, or have other names or shapes than the batches before.
        """
        values = {name: _array(value) for name, value in check_metrics(metrics, self._what).items()}
        layout = [(name, list(values[name].shape)) for name in sorted(values)]
        if self._layout is None:
            self._lay_out(layout)
        elif layout != self._layout:
            raise TrialError(self._difference(layout))
        flat = [np.ones(1), *(values[name].reshape(-1) for name in sorted(values))]
        self.sums += torch.from_numpy(np.concatenate(flat))
        self._batches += 1

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
            name: part.numpy().reshape(shape) / count
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


def _array(value: Any) -> NDArray[np.float64]:
    if isinstance(value, Tensor):
        value = value.detach().to("cpu", torch.float64).numpy()
    return np.asarray(value, np.float64)


def _shown(layout: Layout) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in layout)
