"""Contract: a metric, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
import difflib
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import Choice, ClassLabel, Feature, SoftLabel, Span, Tags, Text
from t2t_torch.registry import entries, metric

__all__ = [
    "WITH_IDS",
    "Function",
    "Mean",
    "Metric",
    "counted",
    "is_error",
    "is_metric_of",
    "is_of",
    "lower_is_better",
    "metric_of",
    "quotient",
    "sums_of",
]

_Metric = TypeVar("_Metric")

WITH_IDS = (Text, Tags, ClassLabel, SoftLabel, Choice)
"""The targets that a function is a metric of, unless it says others with `is_of`."""


DECODE_ERRORS = ("ter", "word_error_rate", "malformed_trees")
"""The scores of decodes, `metrics/text_scores.py`, that are the better the lower they are."""

Function: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, targets, where targets count) -> (sum of values, sum of weights)."""


class Metric(abc.ABC):
    """What evaluation reports of a target.

    A registered metric is a subclass of this, or a function (logits, targets, weights) -> (sum of
    values, sum of weights), whose mean is reported: see `Mean`.

    Attributes:
      of: the types of targets that it is a metric of; `is_of` says it of a function.
      lower_is_better: whether less of it is better; `is_error` says it of a function.
      reads_mask: whether it needs a note `<target>_mask`: see `masked_update`.
      reads_place: whether it needs a note `<target>_place`: see `placed_update`.
      reads_standardized: whether numbers that are learned standardized stay so; else they are in
        their own units.
      size: how many numbers it adds up.

    Args:
      feature: the target.
    """

    of: ClassVar[tuple[type[Feature], ...]] = (Feature,)
    lower_is_better: ClassVar[bool] = False
    reads_mask: ClassVar[bool] = False
    reads_place: ClassVar[bool] = False
    reads_standardized: ClassVar[bool] = False
    size: int = 2

    def __init__(self, feature: Feature) -> None:
        self.feature = feature

    @abc.abstractmethod
    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns what a batch adds, [size] float64, on any device.

        It does not depend on how the examples were put in batches, nor on what fills them up.

        Args:
          logits: of the target's top.
          targets: as they are in the batch.
        """

    def masked_update(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Returns what a batch adds, also given its `<target>_mask`, which most do not look at."""
        return self.update(logits, targets)

    def make_room(self, queries: int, documents: int) -> None:  # noqa: B027 (most need none)
        """Tells how many queries a split has at most, and how many documents a query."""

    def placed_update(self, logits: Tensor, targets: Tensor, place: Tensor) -> Tensor:
        """Returns what a batch adds, also given the numbers of each example's query and document.

        Args:
          logits: of the target's top.
          targets: as they are in the batch.
          place: [B, 2].
        """
        return self.update(logits, targets)

    @abc.abstractmethod
    def result(self, sums: Tensor) -> float:
        """Returns the metric of all batches from the sums, [size] float64 on the CPU."""

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns all that is reported: the metric under its name, or several below it."""
        return {name: self.result(sums)}


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
        return sums_of(*self._function(logits, targets, counted(self.feature, targets)))

    def result(self, sums: Tensor) -> float:
        """Returns the mean; 0 over nothing."""
        return quotient(sums)


def quotient(sums: Tensor) -> float:
    """Returns a sum of values over its sum of weights, [2], also below 1; 0 over nothing."""
    value, weight = sums.tolist()
    return value / weight if weight > 0 else 0.0


def sums_of(*numbers: Tensor) -> Tensor:
    """Returns scalars in a row, [n] float64, on their device."""
    return torch.stack([number.to(torch.float64) for number in numbers])


def is_of(*kinds: type[Feature]) -> Callable[[_Metric], _Metric]:
    """Says which types of targets a function is a metric of; stands above or below its name."""

    def said(function: _Metric) -> _Metric:
        cast("Any", function).of = kinds
        return function

    return said


def is_error(function: _Metric) -> _Metric:
    """Says that a function is the better the lower it is; stands above or below its name."""
    cast("Any", function).lower_is_better = True
    return function


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
    return Mean(feature, cast("Function", found))


def is_metric_of(name: str, feature: Feature) -> bool:
    """Whether the metric of this registered name is one of such a target."""
    return isinstance(feature, getattr(metric(name), "of", WITH_IDS))


def lower_is_better(name: str) -> bool:
    """Returns whether less of a result is better.

    Args:
      name: of a registered metric, or of a result: "loss", "metrics-<problem>/<target>/<metric>"
        with or without its first part, or "decode/<score>".

    Raises:
      UsageError: it names nothing that is reported.
    """
    parts = name.split("/")
    if name == "loss":
        return True
    if parts[0] == "decode":
        return parts[-1] in DECODE_ERRORS
    if parts[0].startswith("metrics-"):
        parts = parts[1:]
    if parts == ["all_problems", "sum"]:  # what is an error in it is taken off
        return False
    known = {entry.name for entry in entries("metric")}
    for part in parts:  # a target, a metric, and of some metrics a label
        if part in known:
            return bool(getattr(metric(part), "lower_is_better", False))
    near = difflib.get_close_matches(parts[-1], ["loss", *known], n=3)
    raise UsageError(
        f"nothing that is reported is called {name!r}."
        + (f" Did you mean {' or '.join(near)}?" if near else "")
        + " Results are called loss, metrics-<problem>/<target>/<metric>, or decode/<score>; "
        "metrics.jsonl in the run directory has those of a run."
    )
