"""Generalized cross entropy, for labels of which some are wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from t2t_torch.features import ClassLabel, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.loss import ClassLoss
from t2t_torch.registry import register_loss


@register_loss("generalized_cross_entropy")
class GeneralizedCrossEntropy(ClassLoss):
    """(1 - p^q) / q, where p is the probability of the label; bounded by 1 / q for q above 0.

    Zhang and Sabuncu 2018, arXiv:1805.07836, equation 6.  q = 0 is the cross entropy, its limit;
    q = 1 the mean absolute error, halved.
    """

    of = (Text, ClassLabel, Tags)
    reads = ("gce_q",)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.q = hparams.gce_q

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per label.  [..., V], [...] -> [...]."""
        index = labels.clamp(min=0)[..., None]
        log_p = scores.float().log_softmax(-1).gather(-1, index).squeeze(-1)
        if not self.q:
            return -log_p
        return -torch.expm1(self.q * log_p) / self.q  # exact for small q, too
