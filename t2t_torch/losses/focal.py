"""Cross entropy that counts what is known already less."""

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
    """(1 - p)^gamma times the cross entropy, p being the probability of what is right.

    Lin et al. 2017, "Focal loss for dense object detection", arXiv:1708.02002, equation 5.  Its
    alpha, a weight for each class, is `focal_alpha` where each class is there or not (1 - alpha
    where not), and `class_weights` where there is one of several.
    """

    of = (Text, ClassLabel, Tags, Choice, Span, MultiLabel)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_binary = not feature.vocab_size and bool(feature.labels)
        self.gamma = hparams.focal_gamma
        self.alpha = hparams.focal_alpha
        self.reads = ("focal_gamma", "focal_alpha") if self.is_binary else ("focal_gamma",)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of each label.  [..., V], [...]; of `MultiLabel` [B, C], [B, C]."""
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
        """Returns the weights of the labels' classes; of `MultiLabel` `values` has them in."""
        return None if self.is_binary else super().weights(labels)

    def _focused(self, log_p: Tensor) -> Tensor:
        # 1 - p, exact near 0; the clamp keeps the slope of its root finite for gamma below 1.
        missing = (-torch.expm1(log_p)).clamp(min=1e-12)
        return -(missing**self.gamma) * log_p
