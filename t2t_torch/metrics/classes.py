"""Classification metrics from per-class counts, based on torchmetrics.

Of a set of labels those above one half probability are predicted; logits and targets are [B, C].
"""

from __future__ import annotations

import abc
import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Feature, MultiLabel, Tags, Text
from t2t_torch.metrics.metric import (
    Metric,
    Sums,
    counted,
    f1,
    is_of,
    precision,
    quotient,
    recall,
    sums_of,
)
from t2t_torch.registry import register_metric

if TYPE_CHECKING:
    import torchmetrics


WITHOUT_SYNC: dict[str, Any] = {"sync_on_compute": False, "compute_with_cache": False}
"""Constructor arguments of torchmetrics metrics: this library itself sums over processes."""


class LibraryMetric(Metric):
    """A torchmetrics metric.  Subclasses create it in `make` and prepare its inputs in `rows`.

        @register_metric("jaccard")
        class Jaccard(LibraryMetric):
            of = (MultiLabel,)

            def make(self, feature):
                from torchmetrics.classification import MultilabelJaccardIndex

                return MultilabelJaccardIndex(feature.encoder.vocab_size, **WITHOUT_SYNC)

            def rows(self, logits, targets):
                return (logits > 0).long(), targets.long()

    torchmetrics is only imported when such a metric is created.

    Raises:
      UsageError: its states are not sums, or it synchronizes processes itself.
    """

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self._metric = self.make(feature).set_dtype(torch.float64)
        name = type(self._metric).__name__
        from torchmetrics.utilities import dim_zero_sum

        # torchmetrics keeps the reduction of each state only here.
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
        """Returns the metric for a target, created with `**WITHOUT_SYNC`."""

    @abc.abstractmethod
    def rows(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the inputs of the metric's `update`: predictions and targets without padding."""

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the concatenated states of this batch."""
        predicted, right = self.rows(logits, targets)
        self._metric.to(logits.device)
        self._metric.reset()
        if len(right):
            self._metric.update(predicted, right)
        return torch.cat([state.flatten().double() for state in self._states().values()])

    def value(self, sums: Tensor) -> Tensor:
        """Returns the metric computed by torchmetrics from the sums."""
        self._metric.to(sums.device)
        self._metric.reset()
        states = self._states()
        parts = torch.split(sums, [state.numel() for state in states.values()])
        for (name, state), part in zip(states.items(), parts, strict=True):
            setattr(self._metric, name, part.view(state.shape).to(state.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this process may have had no batch while others had
            found: Tensor = self._metric.compute()
        return found

    def result(self, sums: Tensor) -> float:
        """Returns the value, or the mean of several; 0 without examples and for NaN."""
        value = float(self.value(sums).double().mean()) if sums.any() else 0.0
        return 0.0 if math.isnan(value) else value

    def _states(self) -> dict[str, Tensor]:
        return cast("dict[str, Tensor]", self._metric.metric_state)  # no lists: see `__init__`


class _OfClasses(LibraryMetric):
    """A metric of the most likely class, or of labels with a probability above one half.

    Unknown labels are ignored.
    """

    of: ClassVar[tuple[type[Feature], ...]] = (ClassLabel, Tags)

    def rows(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the predicted and correct classes, [N]; for multi-label 0 and 1, [B, C]."""
        if not self.feature.vocab_size:  # a number for each label
            return (logits > 0).long(), (targets > 0).long()
        known = counted(self.feature, targets) & (targets >= 0)
        return logits.argmax(-1)[known], targets[known]


@register_metric("matthews_correlation")
class MatthewsCorrelation(_OfClasses):
    """Matthews correlation of predicted and correct classes, -1 to 1; 0 if either is constant.

    Gorodkin 2004, "Comparing two K-category assignments".
    """

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns the metric for the target's number of classes."""
        from torchmetrics.classification import MulticlassMatthewsCorrCoef

        return MulticlassMatthewsCorrCoef(feature.vocab_size, validate_args=False, **WITHOUT_SYNC)

    def value(self, sums: Tensor) -> Tensor:
        """Returns 0 if one side is constant, for which torchmetrics has other conventions."""
        table = sums.view(self.feature.vocab_size, -1)
        varies = [bool((table.sum(side) > 0).sum() > 1) for side in (0, 1)]
        return super().value(sums) if all(varies) else torch.tensor(0.0)


@register_metric("cohen_kappa")
class CohenKappa(_OfClasses):
    """Cohen's kappa: agreement beyond chance, -1 to 1; 0 if chance agreement is total.

    Cohen 1960.
    """

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns the metric for the target's number of classes."""
        from torchmetrics.classification import MulticlassCohenKappa

        return MulticlassCohenKappa(feature.vocab_size, validate_args=False, **WITHOUT_SYNC)


class _ByClass(_OfClasses):
    """Base class: precision, recall or F1 of each class."""

    of = (ClassLabel, Tags, MultiLabel)
    kind: ClassVar[str]

    def make(self, feature: Any) -> torchmetrics.Metric:
        """Returns the metric for the target's number of classes or labels."""
        from torchmetrics import classification

        kind = "Multiclass" if feature.vocab_size else "Multilabel"
        made = getattr(classification, f"{kind}{self.kind}")
        how = {"average": "none", "validate_args": False, **WITHOUT_SYNC}
        metric: torchmetrics.Metric = made(feature.encoder.vocab_size, **how)
        return metric

    def counts(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the right and all predictions, and the examples, of each class.  [C] each."""
        states = dict(zip(self._states(), sums.view(4, -1), strict=True))
        right = states["tp"]
        return right, right + states["fp"], right + states["fn"]

    def result(self, sums: Tensor) -> float:
        """Returns the mean over classes that occur or are predicted; 0 if there are none."""
        _, predicted, expected = self.counts(sums)
        occurs = predicted + expected > 0
        return float(self.value(sums)[occurs].double().mean()) if occurs.any() else 0.0


@register_metric("f1_macro")
class F1Macro(_ByClass):
    """Mean of the classes' F1, the harmonic mean of precision and recall."""

    kind = "F1Score"


@register_metric("precision_macro")
class PrecisionMacro(_ByClass):
    """Mean of the classes' precision; 0 for a class that is never predicted."""

    kind = "Precision"


@register_metric("recall_macro")
class RecallMacro(_ByClass):
    """Mean of the classes' recall; 0 for a class without examples."""

    kind = "Recall"


class _Micro(_ByClass):
    """Base class: precision, recall or F1 over the predictions of all classes.

    For single-label targets all three equal accuracy.
    """

    kind = "F1Score"
    score: ClassVar[staticmethod[[float, float, float], float]]

    def result(self, sums: Tensor) -> float:
        """Returns the score of the correct and all predictions, and of all examples."""
        return self.score(*(float(counts.sum()) for counts in self.counts(sums)))


@register_metric("precision_micro")
class PrecisionMicro(_Micro):
    """Fraction of the predictions of all classes that are correct."""

    score = staticmethod(precision)


@register_metric("recall_micro")
class RecallMicro(_Micro):
    """Fraction of the examples of all classes that are predicted correctly."""

    score = staticmethod(recall)


@register_metric("f1_micro")
class F1Micro(_Micro):
    """F1 over the predictions of all classes."""

    score = staticmethod(f1)


@register_metric("label_accuracy")
class LabelAccuracy(Metric):
    """Share of correctly predicted labels in the texts of a `TaskMixtureProblem`.

    The label is predicted among all ids of the vocabulary.  Reported over all tasks, and of each as
    `<name>/<task>`; 0 without labels.
    """

    of = (Text,)

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        encoder: Any = feature.encoder  # type: ignore[attr-defined]
        self._labels: dict[str, range] = getattr(encoder, "label_ids", {})
        self.size = 2 * max(1, len(self._labels))

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the numbers of correct labels and of labels, by task."""
        right, sums = logits.argmax(-1) == targets, []
        for ids in self._labels.values():
            there = (targets >= ids.start) & (targets < ids.stop)
            sums += [(right & there).sum(), there.sum()]
        return sums_of(*sums) if sums else targets.new_zeros(2, dtype=torch.float64)

    def result(self, sums: Tensor) -> float:
        """Returns the share over all tasks; 0 without labels."""
        return quotient(sums.view(-1, 2).sum(0))

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns the share over all tasks, and that of each."""
        pairs = zip(self._labels, sums.view(-1, 2), strict=False)
        own = {f"{name}/{task}": quotient(pair) for task, pair in pairs}
        return {name: self.result(sums), **own}


class _PerLabel(_ByClass):
    """Base class: one value per class label; 0 for a class that neither occurs nor is predicted."""

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns `<name>/<label>` for each label."""
        labels = self.feature.encoder.labels  # type: ignore[attr-defined]
        values = self.value(sums).nan_to_num(0.0).view(-1).tolist()
        return {f"{name}/{label}": value for label, value in zip(labels, values, strict=True)}


@register_metric("f1_per_label")
class F1PerLabel(_PerLabel):
    """F1 per class: the harmonic mean of its precision and recall."""

    kind = "F1Score"


@register_metric("precision_per_label")
class PrecisionPerLabel(_PerLabel):
    """Precision per class."""

    kind = "Precision"


@register_metric("recall_per_label")
class RecallPerLabel(_PerLabel):
    """Recall per class."""

    kind = "Recall"


@register_metric("support_per_label")
class SupportPerLabel(_PerLabel):
    """Number of examples, or words, per class."""

    kind = "Recall"

    def value(self, sums: Tensor) -> Tensor:
        """Returns the counts.  [C]."""
        return self.counts(sums)[2]

    def result(self, sums: Tensor) -> float:
        """Returns the total count."""
        return float(self.value(sums).sum())


@register_metric("exact_match")
@is_of(MultiLabel)
def exact_match(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the examples with exactly the correct labels, and all examples."""
    right = ((logits > 0) == (targets > 0)).all(-1) & counted
    return right.sum(), counted.sum()


@register_metric("set_precision")
@is_of(MultiLabel)
def set_precision(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the correctly predicted labels and all predicted labels; 0 if none is predicted."""
    found = logits > 0
    return (found & (targets > 0)).sum(), found.sum()


@register_metric("set_recall")
@is_of(MultiLabel)
def set_recall(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the correctly predicted labels and all reference labels; 0 if there are none."""
    there = targets > 0
    return ((logits > 0) & there).sum(), there.sum()
