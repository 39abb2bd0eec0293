"""Contract: a metric, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import Choice, ClassLabel, Feature, SoftLabel, Span, Tags, Text
from t2t_torch.registry import metric

__all__ = ["WITH_IDS", "Function", "Mean", "Metric", "counted", "is_of", "metric_of", "quotient"]

_Metric = TypeVar("_Metric")

WITH_IDS = (Text, Tags, ClassLabel, SoftLabel, Choice)
"""The targets that a function is a metric of, unless it says others with `is_of`."""


Function: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, targets, where targets count) -> (sum of values, sum of weights)."""


class Metric(abc.ABC):
    """What evaluation reports of a target.

    A registered metric is a subclass of this, or a function (logits, targets, weights) -> (sum of
    values, sum of weights), whose mean is reported: see `Mean`.

    Attributes:
      of: the types of targets that it is a metric of; `is_of` says it of a function.
      size: how many numbers it adds up.

    Args:
      feature: the target.
    """

    of: ClassVar[tuple[type[Feature], ...]] = (Feature,)
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
        return quotient(sums)


def quotient(sums: Tensor) -> float:
    """Returns a sum of values over its sum of weights, [2], also below 1; 0 over nothing."""
    value, weight = sums.tolist()
    return value / weight if weight > 0 else 0.0


def is_of(*kinds: type[Feature]) -> Callable[[_Metric], _Metric]:
    """Says which types of targets a function is a metric of; stands above or below its name."""

    def said(function: _Metric) -> _Metric:
        function.of = kinds
        return function

    return said


def counted(feature: Feature, targets: Tensor) -> Tensor:
    """Returns where the targets count: all but what fills up, as bool.

    [B, T] of a sequence; [B] of what is one for each example.
    """
    if feature.vocab_size and not isinstance(feature, Span):
        return targets != feature.padding
    return torch.ones(len(targets), dtype=torch.bool, device=targets.device)


def metric_of(name: str, feature: Feature) -> Metric:
    """Makes the metric of this registered name for a target.

    Raises:
      UsageError: it is a metric of other targets.
    """
    found = metric(name)
    kinds = getattr(found, "of", WITH_IDS)
    if not isinstance(feature, kinds):
        told = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(
            f"the metric {name!r} is of a target that is a {told}, and this one is a "
            f"{type(feature).__name__}. Take it out of the problem's `metrics`."
        )
    if isinstance(found, type) and issubclass(found, Metric):
        return found(feature)
    return Mean(feature, found)
