"""Which examples are right, of every kind of target."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Feature, MultiLabel, Span, Tags, Text
from t2t_torch.metrics.metric import counted
from t2t_torch.modalities.span import best_spans

COMPARED = (Choice, ClassLabel, MultiLabel, Span, Tags, Text)
"""The targets of which a guess is right or wrong; numbers are more or less so."""


def right_rows(feature: Feature, logits: Tensor, targets: Tensor) -> Tensor:
    """Returns where all of an example's target is guessed right, [B] bool.

    Args:
      feature: one of `COMPARED`.
      logits: of the target's top.
      targets: as they are in the batch.
    """
    if isinstance(feature, Span):
        return (best_spans(logits) == targets).all(-1)
    if isinstance(feature, MultiLabel):
        return ((logits > 0) == (targets > 0)).all(-1)
    right = (logits.argmax(-1) == targets) | ~counted(feature, targets)
    return right if right.dim() == 1 else right.all(-1)


def all_right(
    features: Mapping[str, Feature], logits: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> Tensor:
    """Returns the examples of which all targets are right, and the examples, [2] float64."""
    rows = [right_rows(feature, logits[name], batch[name]) for name, feature in features.items()]
    right = torch.stack(rows).all(0)
    return torch.stack([right.sum(), right.new_tensor(len(right), dtype=torch.int64)]).double()
