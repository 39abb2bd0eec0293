"""Margin losses."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.loss import ClassLoss
from t2t_torch.registry import register_loss


class _Margin(ClassLoss):
    """Base class: how far each wrong class is from being `loss_margin` below the correct one.

    Args:
      feature: the target.
      hparams: loss_margin.
    """

    reads = ("loss_margin",)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.margin = hparams.loss_margin

    def _lacking(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the summed margin violations of wrong classes.  [..., V], [...] -> [...]."""
        index = labels.clamp(min=0)[..., None]
        lacking = (self.margin - scores.float().gather(-1, index) + scores.float()).relu()
        return lacking.sum(-1) - lacking.gather(-1, index).squeeze(-1)


@register_loss("hinge")
class Hinge(_Margin):
    """Multi-class hinge loss, divided by the number of classes, as torch's `multi_margin_loss`.

    Crammer and Singer 2001 use the worst class; this sums over all, as Weston and Watkins 1999.
    """

    of = (Text, ClassLabel, Tags)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per label.  [..., V], [...] -> [...]."""
        return self._lacking(scores, labels) / scores.size(-1)


@register_loss("margin_ranking")
class MarginRanking(_Margin):
    """Mean margin loss of the correct candidate's score over each other's, with `loss_margin`.

    For two candidates it equals torch's `margin_ranking_loss`.
    """

    of = (Choice,)
    takes_class_weights = False

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per choice.  [B, K], [B] -> [B]."""
        return self._lacking(scores, labels) / max(scores.size(-1) - 1, 1)
