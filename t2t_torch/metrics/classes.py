"""Metrics of classes by class: made of how often each was taken for each."""

from __future__ import annotations

import abc
import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Feature, MultiLabel, Tags
from t2t_torch.metrics.metric import Metric, counted
from t2t_torch.registry import register_metric

if TYPE_CHECKING:
    import torchmetrics


# Metrics of torchmetrics, those whose states are sums.


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


class _OfClasses(LibraryMetric):
    """A metric of the likeliest class, or of the labels that are likelier than not.

    An unknown label counts for nothing: it is no class.
    """

    of: ClassVar[tuple[type[Feature], ...]] = (ClassLabel, Tags)

    def rows(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the guessed and the right classes, [N]; of labels 0 and 1, [B, C]."""
        if isinstance(self.feature, MultiLabel):
            return (logits > 0).long(), (targets > 0).long()
        known = counted(self.feature, targets) & (targets >= 0)
        return logits.argmax(-1)[known], targets[known]


@register_metric("matthews_correlation")
class MatthewsCorrelation(_OfClasses):
    """Matthews' correlation of guessed and right classes, -1 to 1; 0 where one of them is always
    the same.  Gorodkin 2004, "Comparing two K-category assignments".
    """

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns it for as many classes."""
        from torchmetrics.classification import MulticlassMatthewsCorrCoef

        return MulticlassMatthewsCorrCoef(feature.vocab_size, validate_args=False, **WITHOUT_SYNC)

    def value(self, sums: Tensor) -> Tensor:
        """Returns 0, where torchmetrics has conventions of its own, if one side never varies."""
        table = sums.view(self.feature.vocab_size, -1)
        varies = [bool((table.sum(side) > 0).sum() > 1) for side in (0, 1)]
        return super().value(sums) if all(varies) else torch.tensor(0.0)


@register_metric("cohen_kappa")
class CohenKappa(_OfClasses):
    """How much more often guess and class agree than by chance, -1 to 1; 0 if chance always does.
    Cohen 1960.
    """

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns it for as many classes."""
        from torchmetrics.classification import MulticlassCohenKappa

        return MulticlassCohenKappa(feature.vocab_size, validate_args=False, **WITHOUT_SYNC)


class _ByClass(_OfClasses):
    """Precision, recall or F1 of each class."""

    of = (ClassLabel, Tags, MultiLabel)
    kind: ClassVar[str]

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns it for as many classes or labels."""
        from torchmetrics import classification

        many = isinstance(feature, MultiLabel)
        made = getattr(classification, f"{'Multilabel' if many else 'Multiclass'}{self.kind}")
        how = {"average": "none", "validate_args": False, **WITHOUT_SYNC}
        metric: torchmetrics.Metric = made(feature.encoder.vocab_size, **how)
        return metric

    def result(self, sums: Tensor) -> float:
        """Returns the mean over the classes that are there or guessed; 0 over none."""
        states = dict(zip(self._states(), sums.view(4, -1), strict=True))
        occurs = states["tp"] + states["fp"] + states["fn"] > 0
        return float(self.value(sums)[occurs].double().mean()) if occurs.any() else 0.0


@register_metric("f1_macro")
class F1Macro(_ByClass):
    """The mean of the classes' F1, the harmonic mean of precision and recall."""

    kind = "F1Score"


@register_metric("precision_macro")
class PrecisionMacro(_ByClass):
    """The mean over classes of the share of its guesses that are right; 0 if it is not guessed."""

    kind = "Precision"


@register_metric("recall_macro")
class RecallMacro(_ByClass):
    """The mean over classes of the share of its examples that are found; 0 if there is none."""

    kind = "Recall"


class _Micro(_ByClass):
    """Precision, recall or F1 of the guesses of all classes together.

    Of one class for each example, all three are the share that is right.
    """

    kind = "F1Score"

    def _totals(self, sums: Tensor) -> tuple[float, float, float]:
        """Returns the guesses that are right, all guesses, and what is there."""
        states = dict(zip(self._states(), sums.view(4, -1), strict=True))
        right = float(states["tp"].sum())
        return right, right + float(states["fp"].sum()), right + float(states["fn"].sum())


@register_metric("precision_micro")
class PrecisionMicro(_Micro):
    """The share of the guesses of all classes that are right."""

    def result(self, sums: Tensor) -> float:
        """Returns the share; 0 where nothing is guessed."""
        right, guessed, _ = self._totals(sums)
        return right / guessed if guessed else 0.0


@register_metric("recall_micro")
class RecallMicro(_Micro):
    """The share of what is there, of all classes, that is found."""

    def result(self, sums: Tensor) -> float:
        """Returns the share; 0 where nothing is there."""
        right, _, there = self._totals(sums)
        return right / there if there else 0.0


@register_metric("f1_micro")
class F1Micro(_Micro):
    """F1 of the guesses of all classes together."""

    def result(self, sums: Tensor) -> float:
        """Returns the harmonic mean of precision and recall; 0 where nothing is right."""
        right, guessed, there = self._totals(sums)
        return 2 * right / (guessed + there) if right else 0.0


class _PerLabel(_ByClass):
    """The same for each class by itself, by its label; 0 of one neither there nor guessed."""

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns `<name>/<label>` for each label."""
        labels = self.feature.encoder.labels  # type: ignore[attr-defined]
        values = self.value(sums).nan_to_num(0.0).view(-1).tolist()
        return {f"{name}/{label}": value for label, value in zip(labels, values, strict=True)}


@register_metric("f1_per_label")
class F1PerLabel(_PerLabel):
    """F1 of each class: the harmonic mean of its precision and recall."""

    kind = "F1Score"


@register_metric("precision_per_label")
class PrecisionPerLabel(_PerLabel):
    """The share of each class's guesses that are right."""

    kind = "Precision"


@register_metric("recall_per_label")
class RecallPerLabel(_PerLabel):
    """The share of each class's examples that are found."""

    kind = "Recall"


@register_metric("support_per_label")
class SupportPerLabel(_PerLabel):
    """How many examples, or words, are of each class."""

    kind = "Recall"

    def value(self, sums: Tensor) -> Tensor:
        """Returns the numbers.  [C]."""
        states = dict(zip(self._states(), sums.view(4, -1), strict=True))
        there: Tensor = states["tp"] + states["fn"]
        return there

    def result(self, sums: Tensor) -> float:
        """Returns how many there are in all."""
        return float(self.value(sums).sum())
