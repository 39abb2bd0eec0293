"""Metrics of choices among candidates."""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import Choice
from t2t_torch.metrics.metric import is_of
from t2t_torch.registry import register_metric


@register_metric("pairwise_accuracy")
@is_of(Choice)
def pairwise_accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the examples whose right candidate has the best score, and all.  [B, K], [B].

    Where k candidates share the best score it is one k-th right: equal scores are a draw by lot.
    """
    best = logits == logits.max(-1, keepdim=True).values  # [B, K]
    right = best.gather(-1, targets.clamp(min=0)[:, None]).squeeze(-1) & counted
    return (right.double() / best.sum(-1)).sum(), counted.sum()
