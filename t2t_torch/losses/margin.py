"""What is right has to lead by a margin."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.loss import ClassLoss
from t2t_torch.registry import register_loss


class _Margin(ClassLoss):
    """What each wrong class lacks of being `loss_margin` behind the right one.

    Args:
      feature: the target.
      hparams: loss_margin.
    """

    reads = ("loss_margin",)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.margin = hparams.loss_margin

    def _lacking(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the sum over the wrong classes.  [..., V], [...] -> [...]."""
        index = labels.clamp(min=0)[..., None]
        lacking = (self.margin - scores.float().gather(-1, index) + scores.float()).relu()
        return lacking.sum(-1) - lacking.gather(-1, index).squeeze(-1)


@register_loss("hinge")
class Hinge(_Margin):
    """The multi-class hinge loss, over the number of classes, as torch's `multi_margin_loss`.

    Crammer and Singer 2001 take the worst class; this sums over all, as Weston and Watkins 1999.
    """

    of = (Text, ClassLabel, Tags)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of each label.  [..., V], [...] -> [...]."""
        return self._lacking(scores, labels) / scores.size(-1)


@register_loss("margin_ranking")
class MarginRanking(_Margin):
    """The right candidate's score has to be `loss_margin` above each other's; their mean.

    Of two candidates that is torch's `margin_ranking_loss`.
    """

    of = (Choice,)
    takes_class_weights = False

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of each choice.  [B, K], [B] -> [B]."""
        return self._lacking(scores, labels) / max(scores.size(-1) - 1, 1)
