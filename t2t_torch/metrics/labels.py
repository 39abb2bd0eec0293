"""Multi-label metrics; labels above one half probability are predicted.  [B, C] each."""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import MultiLabel
from t2t_torch.metrics.metric import Sums, is_of
from t2t_torch.registry import register_metric


@register_metric("exact_match")
@is_of(MultiLabel)
def exact_match(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the examples with exactly the correct labels, and all examples."""
    right = ((logits > 0) == (targets > 0)).all(-1) & counted
    return right.sum(), counted.sum()


@register_metric("set_precision")
@is_of(MultiLabel)
def set_precision(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the correctly predicted labels and all predicted labels; 0 if none is predicted."""
    found = logits > 0
    return (found & (targets > 0)).sum(), found.sum()


@register_metric("set_recall")
@is_of(MultiLabel)
def set_recall(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the correctly predicted labels and all reference labels; 0 if there are none."""
    there = targets > 0
    return ((logits > 0) & there).sum(), there.sum()
