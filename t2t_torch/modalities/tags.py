"""A label for each word."""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import IGNORED, Tags
from t2t_torch.modalities.label import TargetModality, class_loss
from t2t_torch.modality import Guess, Loss


class TagsModality(TargetModality):
    """A label for each word: hidden [B, W, H] -> logits [B, W, C]; an unknown one has no loss."""

    serves = Tags

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there are labels.  [B, W] -> [B, W] bool."""
        return values != IGNORED

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed cross entropy and the words.  [B, W, C], [B, W]; smoothed in TRAIN."""
        label_smoothing = self.label_smoothing if self.training else 0.0
        return class_loss(logits, targets, weights, label_smoothing)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the most likely label of each word."""
        return [Guess(row, None) for row in logits.argmax(-1).tolist()]
