"""Metrics of torchmetrics, those whose states are sums."""

from __future__ import annotations

import abc
import math
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import Feature
from t2t_torch.metrics.metric import Metric

if TYPE_CHECKING:
    import torchmetrics

WITHOUT_SYNC: dict[str, Any] = {"sync_on_compute": False, "compute_with_cache": False}
"""What a torchmetrics metric is made with here: processes add up the sums, once, by themselves."""


class LibraryMetric(Metric):
    """A metric of torchmetrics.  A subclass says in `make` which, and in `rows` what it is shown.

        @register_metric("jaccard")
        class Jaccard(LibraryMetric):
            of = (MultiLabel,)

            def make(self, feature):
                from torchmetrics.classification import MultilabelJaccardIndex

                return MultilabelJaccardIndex(feature.encoder.vocab_size, **WITHOUT_SYNC)

            def rows(self, logits, targets):
                return (logits > 0).long(), targets.long()

    torchmetrics is imported when such a metric is made, not before.

    Raises:
      UsageError: its states are no sums, or it would exchange them among processes by itself.
    """

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self._metric = self.make(feature).set_dtype(torch.float64)
        name = type(self._metric).__name__
        from torchmetrics.utilities import dim_zero_sum

        # The one place where torchmetrics keeps how a state is put together.
        reductions = self._metric._reductions
        other = [state for state, how in reductions.items() if how is not dim_zero_sum]
        if other or not reductions:
            raise UsageError(
                f"torchmetrics' {name} cannot be evaluated here: {', '.join(other) or 'nothing'} "
                "of it is no sum that adds up over batches and processes. Many metrics have such "
                "states if made with thresholds=..."
            )
        if self._metric.sync_on_compute:
            raise UsageError(
                f"torchmetrics' {name} would add up over processes a second time. Make it with "
                "**WITHOUT_SYNC."
            )
        self.size = sum(state.numel() for state in self._states().values())

    @abc.abstractmethod
    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns the metric for a target, made with `**WITHOUT_SYNC`."""

    @abc.abstractmethod
    def rows(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what the metric's `update` takes: guesses and targets of what counts."""

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the states of this batch, in a row."""
        guesses, right = self.rows(logits, targets)
        self._metric.to(logits.device)
        self._metric.reset()
        if len(right):
            self._metric.update(guesses, right)
        return torch.cat([state.flatten().double() for state in self._states().values()])

    def value(self, sums: Tensor) -> Tensor:
        """Returns what torchmetrics makes of the sums."""
        self._metric.to(sums.device)
        self._metric.reset()
        states = self._states()
        parts = torch.split(sums, [state.numel() for state in states.values()])
        for (name, state), part in zip(states.items(), parts, strict=True):
            setattr(self._metric, name, part.view(state.shape).to(state.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # This process may have had no batch; others had.
            found: Tensor = self._metric.compute()
        return found

    def result(self, sums: Tensor) -> float:
        """Returns its value, the mean if it is several; 0 over nothing, and for no number."""
        value = float(self.value(sums).double().mean()) if sums.any() else 0.0
        return 0.0 if math.isnan(value) else value

    def _states(self) -> dict[str, Tensor]:
        return cast("dict[str, Tensor]", self._metric.metric_state)  # no lists: `__init__` looked
