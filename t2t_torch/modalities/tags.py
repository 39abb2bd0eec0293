"""A label for each word."""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import IGNORED, Tags
from t2t_torch.modalities.label import TargetModality
from t2t_torch.modality import Guess, Hidden


class TagsModality(TargetModality):
    """A label for each word: hidden [B, W, H] -> logits [B, W, C]; an unknown one has no loss."""

    serves = Tags

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there are labels.  [B, W] -> [B, W] bool."""
        return values != IGNORED

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns what `top` makes of each word; padding has no weight in a loss, whatever it
        gets.
        """
        logits: Tensor = self.top(hidden.states)
        return logits

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 where the label is known.  [B, W] -> [B, W]."""
        return (targets >= 0).float()

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the most likely label of each word."""
        return [Guess(row, None) for row in logits.argmax(-1).tolist()]
