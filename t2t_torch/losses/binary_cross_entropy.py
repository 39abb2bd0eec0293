"""Binary cross entropy per class."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, MultiLabel, Tags
from t2t_torch.hparam import HParams
from t2t_torch.loss import TargetLoss
from t2t_torch.registry import register_loss


@register_loss("binary_cross_entropy")
class BinaryCrossEntropy(TargetLoss):
    """Binary cross entropy of each class, averaged over classes.

    For single-label targets: one class against all others.  A class weight multiplies the loss of
    positive labels, like torch's `pos_weight`.
    """

    of = (MultiLabel, ClassLabel, Tags)
    reads = ()
    takes_class_weights = True

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_one = not feature.is_multilabel

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per class.  [..., C], [...] or [B, C] -> [..., C]."""
        if self.is_one:
            labels = F.one_hot(labels.clamp(min=0), scores.size(-1))
        weights = self.class_weights if self.training else None
        return F.binary_cross_entropy_with_logits(
            scores.float(), labels.float(), pos_weight=weights, reduction="none"
        )
