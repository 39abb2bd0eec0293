"""Metric interface: sums that are additive over batches and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from t2t_torch.errors import UsageError, did_you_mean
from t2t_torch.features import Choice, ClassLabel, Feature, SoftLabel, Tags, Text
from t2t_torch.registry import entries, metric

_Metric = TypeVar("_Metric")

WITH_IDS = (Text, Tags, ClassLabel, SoftLabel, Choice)
"""Default targets of a function metric; `is_of` sets others."""


DECODE_ERRORS = ("ter", "word_error_rate", "character_error_rate", "malformed_trees")
"""Scores of decodes, `metrics/text_scores.py`, for which lower is better."""

Sums: TypeAlias = tuple[Tensor, Tensor]
"""The sum of values, and the sum of their weights."""

Function: TypeAlias = Callable[[Tensor, Tensor, Tensor], Sums]
"""(logits, targets, where targets count) -> sums."""


class Metric(abc.ABC):
    """A metric of a target, reported by evaluation.

    A registered metric is a subclass of this, or a function (logits, targets, weights) -> (sum of
    values, sum of weights), whose mean is reported: see `Mean`.

    Attributes:
      of: types of targets that the metric applies to; `is_of` sets it for a function.
      lower_is_better: lower values are better; `is_error` sets it for a function.
      reads: X if it requires the annotation `<target>_X`: see `noted_update`.
      keeps_rows: what it computes for a batch are rows, [n, size], which are kept; not sums.
      reads_standardized: use standardized numeric targets as they are, without conversion to
        original units.
      size: number of sums.

    Args:
      feature: the target.
    """

    of: ClassVar[tuple[type[Feature], ...]] = (Feature,)
    lower_is_better: ClassVar[bool] = False
    reads: ClassVar[str] = ""
    keeps_rows: ClassVar[bool] = False
    reads_standardized: ClassVar[bool] = False
    size: int = 2

    def __init__(self, feature: Feature) -> None:
        self.feature = feature

    @abc.abstractmethod
    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sums of a batch, [size] float64, on any device.

        Must not depend on batching or padding.

        Args:
          logits: the target's logits.
          targets: as in the batch.
        """

    def noted_update(self, logits: Tensor, targets: Tensor, note: Tensor) -> Tensor:
        """Returns the sums of a batch with its annotation, `<target>_<reads>`."""
        return self.update(logits, targets)

    def result(self, sums: Tensor) -> float:
        """Returns the metric from the sums of all batches, [size] float64 on the CPU, or the rows.

        By default it is `quotient`, the mean of values with weights.
        """
        return quotient(sums)

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns all reported values: the metric under its name, or several with a suffix."""
        return {name: self.result(sums)}


def precision(right: float, predicted: float, expected: float) -> float:
    """Returns the fraction of the predicted items that are correct; 0 without predictions."""
    return right / predicted if predicted else 0.0


def recall(right: float, predicted: float, expected: float) -> float:
    """Returns the fraction of the reference items that are predicted; 0 without references."""
    return right / expected if expected else 0.0


def f1(right: float, predicted: float, expected: float) -> float:
    """Returns the harmonic mean of precision and recall; 0 if nothing is correct."""
    return 2 * right / (predicted + expected) if right else 0.0


class Mean(Metric):
    """Mean of a function's values.

    Args:
      feature: the target.
      function: (logits, targets, weights) -> (sum of values, sum of weights).
    """

    def __init__(self, feature: Feature, function: Function) -> None:
        super().__init__(feature)
        self._function = function

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sum of the values and of the weights.

        Raises:
          UsageError: the function returned something else.
        """
        sums: Any = self._function(logits, targets, counted(self.feature, targets))
        are_two = isinstance(sums, tuple | list) and len(sums) == 2
        if not (are_two and all(isinstance(one, Tensor) and not one.dim() for one in sums)):
            parts = sums if isinstance(sums, tuple | list) else [sums]
            got = [getattr(one, "shape", None) or type(one).__name__ for one in parts]
            name = getattr(self._function, "__name__", "a metric")
            raise UsageError(
                f"{name} returns two tensors without dimensions: the sum of the values and the sum "
                f"of the weights; got {', '.join(map(str, got))}. Sum them: values.sum()."
            )
        return sums_of(*sums)


def quotient(sums: Tensor) -> float:
    """Returns a sum of values divided by its sum of weights, [2], also below 1; 0 for no weight."""
    value, weight = sums.tolist()
    return value / weight if weight > 0 else 0.0


def sums_of(*numbers: Tensor) -> Tensor:
    """Returns scalars as a vector, [n] float64, on their device."""
    return torch.stack([number.to(torch.float64) for number in numbers])


def is_of(*kinds: type[Feature]) -> Callable[[_Metric], _Metric]:
    """Decorator that sets the target types of a function metric, above or below its name."""

    def said(function: _Metric) -> _Metric:
        cast("Any", function).of = kinds
        return function

    return said


def is_error(function: _Metric) -> _Metric:
    """Decorator that marks a function metric as lower-is-better, above or below its name."""
    cast("Any", function).lower_is_better = True
    return function


def counted(feature: Feature, targets: Tensor) -> Tensor:
    """Returns which targets count (all but padding), as bool.

    [B, T] for sequences; [B] for targets with one value per example.
    """
    if feature.vocab_size:
        return targets != feature.padding
    return torch.ones(len(targets), dtype=torch.bool, device=targets.device)


def metric_of(name: str, feature: Feature) -> Metric:
    """Instantiates a registered metric for a target.

    Raises:
      UsageError: the metric does not apply to this target.
    """
    found = metric(name)
    kinds = getattr(found, "of", WITH_IDS)
    if not isinstance(feature, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(
            f"the metric {name!r} is of a target that is a {expected}, and this one is a "
            f"{type(feature).__name__}. Take it out of the problem's `metrics`."
        )
    if isinstance(found, type) and issubclass(found, Metric):
        return found(feature)
    return Mean(feature, cast("Function", found))


def is_metric_of(name: str, feature: Feature) -> bool:
    """Returns whether a registered metric applies to such a target."""
    return isinstance(feature, getattr(metric(name), "of", WITH_IDS))


def lower_is_better(name: str) -> bool:
    """Returns whether lower values of a result are better.

    Args:
      name: a registered metric, or a result: "loss", "metrics-<problem>/<target>/<metric>" with or
        without its first part, or "decode/<score>".

    Raises:
      UsageError: the name is not a metric or result.
    """
    parts = name.split("/")
    if name == "loss":
        return True
    if parts[0] == "decode":
        return parts[-1] in DECODE_ERRORS
    if parts[0].startswith("metrics-"):
        parts = parts[1:]
    if parts == ["all_problems", "sum"]:  # errors are subtracted in this sum
        return False
    known = {entry.name for entry in entries("metric")}
    for part in parts:  # a target, a metric, and for some metrics a label
        if part in known:
            return bool(getattr(metric(part), "lower_is_better", False))
    raise UsageError(
        f"nothing that is reported is called {name!r}."
        + did_you_mean(parts[-1], ["loss", *known], form="{}")
        + " Results are called loss, metrics-<problem>/<target>/<metric>, or decode/<score>; "
        "metrics.jsonl in the run directory has those of a run."
    )
