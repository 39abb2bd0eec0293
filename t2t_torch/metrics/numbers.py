"""Metrics of predicted numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from t2t_torch.features import Real
from t2t_torch.metrics.metric import Metric, quotient
from t2t_torch.registry import register_metric


@register_metric("rmse")
class RootMeanSquaredError(Metric):
    """The root of the mean squared error, over all numbers of all examples."""

    of = (Real,)

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the squared errors and how many they are.  [B, size] each."""
        errors = (logits.double() - targets.double()).square().cpu()
        return torch.stack([errors.sum(), torch.tensor(float(errors.numel())).double()])

    def result(self, sums: Tensor) -> float:
        """Returns the root."""
        return math.sqrt(quotient(sums))


@register_metric("pearson")
class Pearson(Metric):
    """Pearson's correlation of what is predicted and what is right, over all numbers."""

    of = (Real,)
    size = 6

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the moments up to the second.  [B, size] each."""
        x, y = logits.double().cpu().flatten(), targets.double().cpu().flatten()
        moments = [x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]
        return torch.stack([torch.tensor(float(len(x))).double(), *moments])

    def result(self, sums: Tensor) -> float:
        """Returns the correlation; 0 where one side does not vary."""
        n, x, y, xx, yy, xy = sums.tolist()
        spread = (n * xx - x * x) * (n * yy - y * y)
        return (n * xy - x * y) / math.sqrt(spread) if spread > 0 else 0.0
