"""Regression losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Real
from t2t_torch.hparam import HParams
from t2t_torch.loss import TargetLoss
from t2t_torch.registry import register_loss


@register_loss("mse")
class SquaredError(TargetLoss):
    """Squared error, averaged over the values of a target."""

    of = (Real,)
    reads = ()

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the error per value.  [B, size], [B, size] -> [B, size]."""
        return (scores.float() - labels).square()


@register_loss("mae")
class AbsoluteError(TargetLoss):
    """Absolute error, averaged over the values of a target."""

    of = (Real,)
    reads = ()

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the error per value.  [B, size], [B, size] -> [B, size]."""
        return (scores.float() - labels).abs()


@register_loss("cosine")
class Cosine(TargetLoss):
    """1 minus the cosine similarity of predicted and target vectors.

    Raises:
      HParamsError: the target has one value, whose cosine is only its sign.
    """

    of = (Real,)
    reads = ()
    mean: Tensor
    std: Tensor

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        if feature.size < 2:
            raise HParamsError(
                "the loss 'cosine' is of vectors; the target has one number, whose cosine is its "
                "sign. Take mse or mae."
            )
        # The angle is that of the original values, even if targets are standardized.
        mean, std = feature.mean or [0.0] * feature.size, feature.std or [1.0] * feature.size
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32), persistent=False)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per example.  [B, size], [B, size] -> [B]."""
        ours, theirs = (x.float() * self.std + self.mean for x in (scores, labels))
        return 1.0 - F.cosine_similarity(ours, theirs, dim=-1)
