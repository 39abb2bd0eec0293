"""Contract: a metric, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from t2t_torch.features import Feature, Span
from t2t_torch.registry import metric

__all__ = ["Function", "Mean", "Metric", "counted", "metric_of"]


Function: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, targets, where targets count) -> (sum of values, sum of weights)."""


class Metric(abc.ABC):
    """What evaluation reports of a target.

    A registered metric is a subclass of this, or a function (logits, targets, weights) -> (sum of
    values, sum of weights), whose mean is reported: see `Mean`.

    Attributes:
      size: how many numbers it adds up.

    Args:
      feature: the target.
    """

    size: ClassVar[int] = 2

    def __init__(self, feature: Feature) -> None:
        self.feature = feature

    @abc.abstractmethod
    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns what a batch adds, [size] float64.

        Args:
          logits: of the target's top.
          targets: as they are in the batch.
        """

    @abc.abstractmethod
    def result(self, sums: Tensor) -> float:
        """Returns the metric of all batches from the sums, [size] float64."""


class Mean(Metric):
    """The mean of a function's values.

    Args:
      feature: the target.
      function: (logits, targets, weights) -> (sum of values, sum of weights).
    """

    def __init__(self, feature: Feature, function: Function) -> None:
        super().__init__(feature)
        self._function = function

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sum of the values and of the weights."""
        value, weight = self._function(logits, targets, counted(self.feature, targets))
        return torch.stack([value.to("cpu", torch.float64), weight.to("cpu", torch.float64)])

    def result(self, sums: Tensor) -> float:
        """Returns the mean; 0 over nothing."""
        return float(sums[0] / sums[1].clamp(min=1.0))


def counted(feature: Feature, targets: Tensor) -> Tensor:
    """Returns where the targets count: all but what fills up, as bool.

    [B, T] of a sequence; [B] of what is one for each example.
    """
    if feature.vocab_size and not isinstance(feature, Span):
        return targets != feature.padding
    return torch.ones(len(targets), dtype=torch.bool, device=targets.device)


def metric_of(name: str, feature: Feature) -> Metric:
    """Makes the metric of this registered name for a target."""
    found = metric(name)
    if isinstance(found, type) and issubclass(found, Metric):
        return found(feature)
    return Mean(feature, found)
