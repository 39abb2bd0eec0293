"""Whether a model is right as often as it says.  Guo et al. 2017, "On calibration of modern neural
networks", equations 3 and 5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.metrics.metric import Metric, counted
from t2t_torch.registry import register_metric

_BINS = 15  # of equal width; the paper's


@register_metric("expected_calibration_error")
class ExpectedCalibrationError(Metric):
    """The mean over guesses of how far their bin's confidence is from its accuracy."""

    of = (ClassLabel, Choice, Tags, Text)
    lower_is_better = True
    size = 3 * _BINS

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns for each bin the guesses, their confidence, and the right ones, [3 * bins].

        An unknown label is never right.
        """
        counts = counted(self.feature, targets)
        probability, guesses = logits[counts].float().softmax(-1).max(-1)
        place = (probability.nan_to_num(0.0) * _BINS).long().clamp(max=_BINS - 1)
        right = (guesses == targets[counts]).double()
        sums = torch.zeros(3, _BINS, dtype=torch.float64, device=logits.device)
        for row, values in enumerate((torch.ones_like(right), probability.double(), right)):
            sums[row].index_add_(0, place, values)
        return sums.flatten()

    def result(self, sums: Tensor) -> float:
        """Returns the mean over guesses; 0 over nothing."""
        found, gaps = self._gaps(sums)
        return float((found * gaps).sum() / found.sum().clamp(min=1))

    def _gaps(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        found, confidence, right = sums.view(3, _BINS)
        return found, (confidence - right).abs() / found.clamp(min=1)


@register_metric("maximum_calibration_error")
class MaximumCalibrationError(ExpectedCalibrationError):
    """The same of the bin that is farthest off."""

    def result(self, sums: Tensor) -> float:
        """Returns the greatest difference; 0 over nothing."""
        return float(self._gaps(sums)[1].max())
