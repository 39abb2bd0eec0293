"""Regression metrics: [B, size] each, over all values of all examples."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import Real
from t2t_torch.metrics.metric import Metric, Sums, is_error, is_of, quotient, sums_of
from t2t_torch.registry import register_metric

_LARGEST = 1e6  # the upper end of the last rank bin
_SMALL = 1e-4  # bins are linear below it and logarithmic above
_ROUNDING = 1e-12  # relative to sums of squares: a smaller variance is rounding error


@register_metric("unpadded_mse")
@is_error
@is_of(Real)
def unpadded_mse(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the squared errors and their number."""
    errors = (logits.double() - targets.double()).square()
    return errors.sum(), errors.new_tensor(errors.numel())


@register_metric("mean_absolute_error")
@is_error
@is_of(Real)
def mean_absolute_error(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the absolute errors and their number."""
    errors = (logits.double() - targets.double()).abs()
    return errors.sum(), errors.new_tensor(errors.numel())


@register_metric("log_poisson")
@is_error
@is_of(Real)
def log_poisson(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the Poisson losses of predicted log rates, and their number.

    Uses Stirling's approximation of the factorial for targets above 1.
    """
    losses = F.poisson_nll_loss(
        logits.double(), targets.double(), log_input=True, full=True, reduction="none"
    )
    return losses.sum(), losses.new_tensor(losses.numel())


@register_metric("rmse")
class RootMeanSquaredError(Metric):
    """Root mean squared error."""

    of = (Real,)
    lower_is_better = True

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the squared errors and their number."""
        return sums_of(*unpadded_mse(logits, targets, targets))

    def result(self, sums: Tensor) -> float:
        """Returns the root."""
        return math.sqrt(quotient(sums))


@register_metric("pearson")
class Pearson(Metric):
    """Pearson correlation of predictions and targets."""

    of = (Real,)
    size = 6

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the first and second moments."""
        x, y = logits.double().flatten(), targets.double().flatten()
        moments = [x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]
        return torch.stack([x.new_tensor(len(x)), *moments])

    def result(self, sums: Tensor) -> float:
        """Returns the correlation; 0 if one side is constant."""
        n, x, y, xx, yy, xy = sums.tolist()
        spreads = n * xx - x * x, n * yy - y * y
        if not (spreads[0] > _ROUNDING * n * xx and spreads[1] > _ROUNDING * n * yy):
            return math.nan if math.isnan(sum(spreads)) else 0.0
        correlation = (n * xy - x * y) / math.sqrt(spreads[0]) / math.sqrt(spreads[1])
        return float(max(-1.0, min(1.0, correlation)))


@register_metric("spearman")
class Spearman(Metric):
    """Spearman correlation: correlation of the ranks of predictions and targets.

    Values are counted in bins, with a relative width of 4.5 %, and 0.0000045 at 0.  Values in one
    bin share their mean rank, as equal values do.  Values beyond 1,000,000 count as equal.
    Standardized targets are ranked as standardized.
    """

    of = (Real,)
    reads_standardized = True
    bins: ClassVar[int] = 1024
    size = 1024 * 1024

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the counts of each pair of bins; NaN if a value is NaN."""
        places = self._bin(logits) * self.bins + self._bin(targets)
        counts = torch.bincount(places, minlength=self.size).double()
        finite = logits.isfinite().all() & targets.isfinite().all()
        counts[0] = torch.where(finite, counts[0], torch.nan)
        return counts

    def result(self, sums: Tensor) -> float:
        """Returns the correlation of the bins' mean ranks; 0 if one side is constant."""
        if sums[0].isnan():
            return math.nan
        table = sums.view(self.bins, self.bins)
        ours, theirs = table.sum(1), table.sum(0)
        x, y = (counts.cumsum(0) - counts / 2 for counts in (ours, theirs))
        middle = sums.sum() / 2
        x, y = x - middle, y - middle
        spread = (ours * x.square()).sum().sqrt() * (theirs * y.square()).sum().sqrt()
        return float((x @ table @ y) / spread) if spread > 0 else 0.0

    def _bin(self, values: Tensor) -> Tensor:
        """Returns the index of each value's bin, increasing with the value, [N] int64."""
        flat = values.double().flatten().nan_to_num(-_LARGEST, _LARGEST, -_LARGEST)
        size = flat.abs().clamp(max=_LARGEST) / _SMALL
        scaled = flat.sign() * size.log1p() / math.log1p(_LARGEST / _SMALL)
        return ((scaled + 1) / 2 * (self.bins - 1)).round().long()


@register_metric("r_squared")
class RSquared(Metric):
    """Coefficient of determination: 1 - sum of squared errors / total sum of squares."""

    of = (Real,)
    size = 4

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the number of targets, their sum and sum of squares, and the squared errors."""
        x, y = logits.double(), targets.double()
        moments = [y.sum(), y.square().sum(), (x - y).square().sum()]
        return torch.stack([x.new_tensor(y.numel()), *moments])

    def result(self, sums: Tensor) -> float:
        """Returns the coefficient, negative if worse than the mean; 0 if targets are constant."""
        n, y, yy, errors = sums.tolist()
        spread = yy - y * y / n if n else 0.0
        return 1.0 - errors / spread if spread > _ROUNDING * yy else 0.0
