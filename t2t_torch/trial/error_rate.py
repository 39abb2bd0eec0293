"""The part of predictions that is wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.errors import TrialError


def error_rate(predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns the part of examples whose likeliest class is not theirs.

    Args:
      predictions: [B, C], a number for each class, the greatest being the choice.
      labels: [B], the classes.

    Returns:
      A scalar from 0 to 1.

    Raises:
      TrialError: the shapes are others, or there are no examples.
    """
    if predictions.dim() != 2 or labels.shape != predictions.shape[:1] or not len(labels):
        raise TrialError(
            f"error_rate was given predictions of shape {list(predictions.shape)} and labels of "
            f"shape {list(labels.shape)}; [B, C] and [B] were expected, with B at least 1."
        )
    return (torch.argmax(predictions, dim=1) != labels).float().mean()
