"""Calibration errors.  Guo et al. 2017, "On calibration of modern neural networks", equations 3
and 5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.metrics.metric import Metric, counted
from t2t_torch.registry import register_metric

_BINS = 15  # of equal width, as in the paper


@register_metric("expected_calibration_error")
class ExpectedCalibrationError(Metric):
    """Mean over predictions of the gap between confidence and accuracy of their bin."""

    of = (ClassLabel, Choice, Tags, Text)
    lower_is_better = True
    size = 3 * _BINS

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns for each bin the predictions, their confidence, and correct ones, [3 * bins].

        An unknown label always counts as wrong.
        """
        counts = counted(self.feature, targets)
        probability, predicted = logits[counts].float().softmax(-1).max(-1)
        place = (probability.nan_to_num(0.0) * _BINS).long().clamp(max=_BINS - 1)
        right = (predicted == targets[counts]).double()
        sums = torch.zeros(3, _BINS, dtype=torch.float64, device=logits.device)
        for row, values in enumerate((torch.ones_like(right), probability.double(), right)):
            sums[row].index_add_(0, place, values)
        return sums.flatten()

    def result(self, sums: Tensor) -> float:
        """Returns the mean over predictions; 0 without predictions."""
        found, gaps = self._gaps(sums)
        return float((found * gaps).sum() / found.sum().clamp(min=1))

    def _gaps(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        found, confidence, right = sums.view(3, _BINS)
        return found, (confidence - right).abs() / found.clamp(min=1)


@register_metric("maximum_calibration_error")
class MaximumCalibrationError(ExpectedCalibrationError):
    """Calibration error of the worst bin."""

    def result(self, sums: Tensor) -> float:
        """Returns the greatest gap; 0 without predictions."""
        return float(self._gaps(sums)[1].max())
