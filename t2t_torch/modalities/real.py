"""Numbers: a linear map in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.features import Real
from t2t_torch.hparam import HParams
from t2t_torch.modality import Guesses, Modality


class NumbersEmbedding(nn.Linear):
    """One position of a sequence for all numbers: [B, size] -> [B, 1, H]."""

    def forward(self, input: Tensor) -> Tensor:
        """[B, size] -> [B, 1, H]."""
        return super().forward(input)[:, None]


class RealModality(Modality):
    """Numbers: [B, size] -> [B, 1, H] in, hidden [B, H] -> [B, size] out.

    Args:
      hparams: hidden_size.
      size: how many numbers.
      is_target: whether they are produced.
    """

    serves = Real
    default_loss = "mse"
    learns_from_teacher = True

    def __init__(self, hparams: HParams, size: int, *, is_target: bool) -> None:
        super().__init__()
        self.bottom = None if is_target else NumbersEmbedding(size, hparams.hidden_size)
        if is_target:
            self.top = nn.Linear(hparams.hidden_size, size)

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes it for so many numbers."""
        return cls(hparams, feature.size, is_target=is_target)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each example.  [B, size] -> [B, 1] bool."""
        return torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)

    def training_values(
        self, logits: Sequence[Tensor], targets: Tensor, taught: Tensor | None, axes: int
    ) -> Tensor:
        """Returns the loss of each example: from a teacher's numbers as from the data's."""
        values = super().training_values(logits, targets, None, axes)
        if taught is None or self.objective is None:
            return values
        share = self.objective.distill_weight
        imitated = self.objective.values(list(logits), taught, axes)
        return (1.0 - share) * values + share * imitated

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the numbers."""
        return Guesses(logits.float())
