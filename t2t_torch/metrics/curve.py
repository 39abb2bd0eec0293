"""Metrics over all thresholds, from score histograms whose size is independent of the data.

A score is the log-odds x of a label, mapped to x / (4 + |x|) and counted in 4,096 bins between
-1 and 1: a bin is 0.002 nats wide near x = 0, 0.02 near 10, 0.4 near 50.  Scores in one bin count
as equal, so an area differs from the exact one by at most half the fraction of (positive,
negative) pairs that share a bin.  Each label takes 64 kB.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Feature, MultiLabel
from t2t_torch.metrics.metric import Metric, counted
from t2t_torch.registry import register_metric

_BINS = 4096
_MIDDLE = 4.0  # nats; log-odds at which half of the bins are used
_LARGEST = 1e6  # nats; exceeds the log-odds of every float in (0, 1)
_PRECISIONS = (0.2, 0.4, 0.6, 0.8, 0.9)  # PyText's, metrics/__init__.py


class _Curve(Metric):
    """Base class: histograms of the scores of positive and negative examples.

    For two classes the second is the label; for more, each is compared with all others.  Examples
    with an unknown class are ignored.
    """

    of = (ClassLabel, MultiLabel)

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        classes: Any = feature
        self._labels = classes.encoder.vocab_size
        if feature.vocab_size == 2:
            self._labels = 1
        self.size = self._labels * 2 * _BINS

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the counts, flattened from [label, negative and positive, bin].

        Shapes: [B, C], [B] or [B, C].
        """
        odds, there = self._odds(logits.double(), targets)  # [N, labels]
        squeezed = odds / (_MIDDLE + odds.abs())
        place = ((squeezed + 1) * (_BINS / 2)).long().clamp(0, _BINS - 1)
        rows = 2 * torch.arange(self._labels, device=odds.device) + there.long()
        return torch.bincount((rows * _BINS + place).flatten(), minlength=self.size).double()

    def _odds(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if not self.feature.vocab_size:  # a number for each label
            odds, there = logits, targets > 0
        else:
            known = counted(self.feature, targets) & (targets >= 0)
            logits, targets = logits[known], targets[known]
            if self._labels == 1:
                odds, there = logits[:, 1:] - logits[:, :1], targets[:, None] == 1
            else:
                log_p = logits.log_softmax(-1)
                odds = log_p - (-torch.expm1(log_p)).log()
                there = targets[:, None] == torch.arange(self._labels, device=targets.device)
        # NaN scores sort below all others.
        return odds.nan_to_num(-_LARGEST).clamp(-_LARGEST, _LARGEST), there

    def _above(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Returns cumulative counts of negatives and positives from the highest bin down.

        [labels, bins] each, for labels with both positive and negative examples.
        """
        counts = sums.view(self._labels, 2, _BINS).flip(-1).cumsum(-1)
        both = (counts[..., -1] > 0).all(-1)
        return counts[both, 1], counts[both, 0]


@register_metric("roc_auc")
class RocAuc(_Curve):
    """Area under the ROC curve, averaged over labels.

    The probability that a positive example scores above a negative one; ties count one half.  0.5
    if no label has both.
    """

    def result(self, sums: Tensor) -> float:
        """Returns the area under the curve."""
        hits, alarms = self._above(sums)
        if not len(hits):
            return 0.5
        heights = F.pad(hits, (1, 0))
        area = ((heights[:, 1:] + heights[:, :-1]) / 2 * F.pad(alarms, (1, 0)).diff(dim=1)).sum(1)
        return float((area / hits[:, -1] / alarms[:, -1]).mean())


@register_metric("average_precision")
class AveragePrecision(_Curve):
    """Average precision over positive examples by falling score, averaged over labels.

    0 if no label has both positive and negative examples.
    """

    def result(self, sums: Tensor) -> float:
        """Returns the sum over thresholds of precision times the gain in recall."""
        hits, alarms = self._above(sums)
        if not len(hits):
            return 0.0
        precision = hits / (hits + alarms).clamp(min=1)
        gains = F.pad(hits, (1, 0)).diff(dim=1) / hits[:, -1:]
        return float((precision * gains).sum(1).mean())


@register_metric("recall_at_precision")
class RecallAtPrecision(_Curve):
    """Best recall at a minimum precision of 0.2, 0.4, 0.6, 0.8 and 0.9, averaged over labels.

    0 if no threshold reaches the precision.
    """

    def result(self, sums: Tensor) -> float:
        """Returns the recall at the highest precision."""
        return self._recall(sums, _PRECISIONS[-1])

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns `<name>/<precision>` for each precision."""
        return {f"{name}/{least}": self._recall(sums, least) for least in _PRECISIONS}

    def _recall(self, sums: Tensor, least: float) -> float:
        hits, alarms = self._above(sums)
        if not len(hits):
            return 0.0
        precise = hits / (hits + alarms).clamp(min=1) >= least
        return float((hits / hits[:, -1:]).where(precise, 0.0).amax(1).mean())
