"""The numbers of a whole example, beside what is found of it or of its words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from t2t_torch.features import Features
from t2t_torch.layers.tokens import dense_of
from t2t_torch.token_hparam import TokenHParams


def dense_width(features: Features, hparams: TokenHParams) -> int:
    """Returns the width of what `beside_dense` adds.

    Args:
      features: of the problem.
      hparams: the widths of the parts.
    """
    return sum(hparams.input_width(features.inputs[name]) for name in dense_of(features))


def beside_dense(hidden: Tensor, names: Sequence[str], features: dict[str, Tensor]) -> Tensor:
    """Concatenates the vectors of numbers to each of an example's.

    Args:
      hidden: [B, H] or [B, W, H].
      names: of the inputs; see `dense_of`.
      features: what `T2TModel.bottom` gives, [B, 1, width] of each name.

    Returns:
      [B, H'] or [B, W, H'].
    """
    if not names:
        return hidden
    parts = [features[name].to(hidden.dtype) for name in names]
    if hidden.dim() == 2:
        return torch.cat([hidden, *(part.squeeze(1) for part in parts)], -1)
    return torch.cat([hidden, *(part.expand(-1, hidden.size(1), -1) for part in parts)], -1)
