"""Cross entropy with less weight on examples already classified well."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import Choice, ClassLabel, MultiLabel, Span, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.loss import ClassLoss
from t2t_torch.registry import register_loss


@register_loss("focal")
class Focal(ClassLoss):
    """(1 - p)^gamma times the cross entropy, where p is the probability of the correct label.

    Lin et al. 2017, "Focal loss for dense object detection", arXiv:1708.02002, equation 5.  Its
    class weight alpha is `focal_alpha` for multi-label targets (1 - alpha for absent classes), and
    `class_weights` for single-label targets.
    """

    of = (Text, ClassLabel, Tags, Choice, Span, MultiLabel)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_binary = bool(feature.labels) and not feature.vocab_size  # a number for each
        self.gamma = hparams.focal_gamma
        self.alpha = hparams.focal_alpha
        self.reads = ("focal_gamma", "focal_alpha") if self.is_binary else ("focal_gamma",)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per label.  [..., V], [...]; for `MultiLabel` [B, C], [B, C]."""
        if self.is_binary:
            there = labels.bool()
            log_p = F.logsigmoid(torch.where(there, scores, -scores).float())
            alpha = torch.where(there, self.alpha, 1.0 - self.alpha)
            values = alpha * self._focused(log_p)
            if self.class_weights is not None and self.training:
                values = values * torch.where(there, self.class_weights, 1.0)
            return values
        log_p = scores.float().log_softmax(-1)
        return self._focused(log_p.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1))

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the class weights of the labels; for `MultiLabel` `values` includes them."""
        return None if self.is_binary else super().weights(labels)

    def _focused(self, log_p: Tensor) -> Tensor:
        # 1 - p, exact near 0; the clamp keeps its gradient finite for gamma below 1.
        missing = (-torch.expm1(log_p)).clamp(min=1e-12)
        return -(missing**self.gamma) * log_p
