"""Metrics of any number of labels."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import MultiLabel
from t2t_torch.metrics.metric import Metric, is_of
from t2t_torch.registry import register_metric


@register_metric("exact_match")
@is_of(MultiLabel)
def exact_match(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the examples whose labels are all found and no other, and all examples.  [B, C]."""
    right = ((logits > 0) == (targets > 0)).all(-1) & counted
    return right.sum(), counted.sum()


@register_metric("f1_micro")
class F1Micro(Metric):
    """F1 of the labels of all examples together; found are those likelier than not."""

    of = (MultiLabel,)
    size = 3

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the labels that are right, found, and there.  [B, C] each."""
        found, there = logits > 0, targets > 0
        counts = [(found & there).sum(), found.sum(), there.sum()]
        return torch.stack(counts).to("cpu", torch.float64)

    def result(self, sums: Tensor) -> float:
        """Returns the harmonic mean of precision and recall; 0 where nothing is right."""
        right, found, there = sums.tolist()
        return 2 * right / (found + there) if right else 0.0
