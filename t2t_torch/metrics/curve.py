"""Metrics over all thresholds, from histograms of scores: their size does not grow with the data.

A score is the log-odds x of a label, squeezed to x / (4 + |x|) and counted in 4,096 bins between
-1 and 1: a bin is 0.002 nats wide about x = 0, 0.02 about 10, 0.4 about 50.  Scores in one bin
count as equal, so that an area differs from that of all scores by no more than half the share of
(positive, negative) pairs that fall in one bin.  A label takes 64 kB.
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
_MIDDLE = 4.0  # nats; where half of the bins are used up
_LARGEST = 1e6  # nats; no float in [0, 1] is a probability of such odds
_PRECISIONS = (0.2, 0.4, 0.6, 0.8, 0.9)  # PyText's, metrics/__init__.py


class _Curve(Metric):
    """Counts the scores of examples that have a label and of those that have not.

    Of two classes the second is the label; of more, each is against all others.  Examples of an
    unknown class do not count.
    """

    of = (ClassLabel, MultiLabel)

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        classes: Any = feature
        self._labels = classes.encoder.vocab_size
        if isinstance(feature, ClassLabel) and self._labels == 2:
            self._labels = 1
        self.size = self._labels * 2 * _BINS

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the counts of [label, without and with, bin].  [B, C], [B] or [B, C]."""
        odds, there = self._odds(logits.double(), targets)  # [N, labels]
        squeezed = odds / (_MIDDLE + odds.abs())
        place = ((squeezed + 1) * (_BINS / 2)).long().clamp(0, _BINS - 1)
        rows = 2 * torch.arange(self._labels, device=odds.device) + there.long()
        return torch.bincount((rows * _BINS + place).flatten(), minlength=self.size).double()

    def _odds(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self.feature, MultiLabel):
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
        # A score that is no number is below all others.
        return odds.nan_to_num(-_LARGEST).clamp(-_LARGEST, _LARGEST), there

    def _above(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """The examples with and without a label at or above each bin, from the highest bin on.

        [labels, bins] each, of the labels that some examples have and some have not.
        """
        counts = sums.view(self._labels, 2, _BINS).flip(-1).cumsum(-1)
        both = (counts[..., -1] > 0).all(-1)
        return counts[both, 1], counts[both, 0]


@register_metric("roc_auc")
class RocAuc(_Curve):
    """How often an example with the label scores above one without, equal scores half; the mean
    over labels.  0.5 if no label is there and missing.
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
    """The mean precision over the examples with the label, by falling score; the mean over labels.
    0 if no label is there and missing.
    """

    def result(self, sums: Tensor) -> float:
        """Returns the sum of precision times gain in recall over all thresholds."""
        hits, alarms = self._above(sums)
        if not len(hits):
            return 0.0
        precision = hits / (hits + alarms).clamp(min=1)
        gains = F.pad(hits, (1, 0)).diff(dim=1) / hits[:, -1:]
        return float((precision * gains).sum(1).mean())


@register_metric("recall_at_precision")
class RecallAtPrecision(_Curve):
    """The best recall at which so much of what is found is right, for 0.2, 0.4, 0.6, 0.8 and 0.9;
    the mean over labels.  0 if no threshold is as precise.
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
