"""Classes: a linear map of what the model makes of an example, and a cross entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, MultiLabel, SoftLabel
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.modality import Guess, Loss, Modality


class TargetModality(Modality):
    """What is only ever a target: nothing of it is given to a model.

    Args:
      hparams: hidden_size, label_smoothing.
      size: logits of an example.
    """

    def __init__(self, hparams: HParams, size: int) -> None:
        super().__init__()
        self.bottom = None
        self.top = nn.Linear(hparams.hidden_size, size)
        self.label_smoothing = hparams.label_smoothing

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes it for a target."""
        if not is_target:
            raise HParamsError(f"a {type(feature).__name__} can be a target, but no input.")
        return cls(hparams, cls.size_of(feature))

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the logits of an example."""
        return int(feature.vocab_size)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each example.  [B, ...] -> [B, 1] bool."""
        return torch.ones(len(values), 1, dtype=torch.bool, device=values.device)


class ClassLabelModality(TargetModality):
    """One of several classes: hidden [B, H] -> logits [B, C]; an unknown class has no loss."""

    serves = ClassLabel

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed cross entropy and the examples.  [B, C], [B]; smoothed in TRAIN."""
        label_smoothing = self.label_smoothing if self.training else 0.0
        return class_loss(logits, targets, weights, label_smoothing)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the most likely class of each example."""
        return best_classes(logits)


class ChoiceModality(TargetModality):
    """One of several inputs: hidden [B, K, H] -> a score of each candidate [B, K]."""

    serves = Choice

    def __init__(self, hparams: HParams, size: int) -> None:
        super().__init__(hparams, size)
        self.top = Score(hparams.hidden_size)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed cross entropy over the candidates, and the examples.

        With two candidates that is the logistic loss of the difference of their scores.  Burges
        et al. 2005, "Learning to rank using gradient descent".
        """
        return class_loss(logits, targets, weights, 0.0)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the best candidate of each example."""
        return best_classes(logits)


class Score(nn.Linear):
    """A number for each vector: [..., H] -> [...].

    Args:
      hidden_size: H.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1)

    def forward(self, input: Tensor) -> Tensor:
        """[..., H] -> [...] float32."""
        return super().forward(input).squeeze(-1).float()


class MultiLabelModality(TargetModality):
    """Any number of classes: hidden [B, H] -> a logit for each class [B, C], by itself."""

    serves = MultiLabel

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the number of classes."""
        return int(feature.shape[0])

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed binary cross entropy, averaged over classes, and the examples."""
        losses = F.binary_cross_entropy_with_logits(
            logits.float(), targets.float(), reduction="none"
        ).mean(-1)  # [B]
        return weighted(losses, weights)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns 1 for each class that is likelier than not."""
        likely = logits > 0
        probability = F.logsigmoid(logits.float().abs()).sum(-1).exp()
        rows = zip(likely.long().tolist(), probability.tolist(), strict=True)
        return [Guess(*row) for row in rows]


class SoftLabelModality(TargetModality):
    """A probability of each class: hidden [B, H] -> logits [B, C]."""

    serves = SoftLabel

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the number of classes."""
        return int(feature.shape[0])

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed cross entropy of the two distributions, and the examples."""
        return weighted(-(targets * logits.float().log_softmax(-1)).sum(-1), weights)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the probability of each class."""
        return [Guess(row, None) for row in logits.float().softmax(-1).tolist()]


def class_loss(
    logits: Tensor, targets: Tensor, weights: Tensor | None, label_smoothing: float
) -> Loss:
    """Returns the summed cross entropy and the weight of the targets that are classes.

    Args:
      logits: [B, ..., C].
      targets: [B, ...]; what is below 0 has no weight.
      weights: of each example, [B]; None is 1.
      label_smoothing: as in `cross_entropy`.
    """
    known = (targets >= 0).float()
    if weights is not None:
        known = known * weights.view(-1, *[1] * (known.dim() - 1))
    losses = cross_entropy(logits, targets.clamp(min=0), label_smoothing)
    return Loss((losses * known).sum(), known.sum())


def best_classes(logits: Tensor) -> list[Guess]:
    """Returns the most likely class of each row of [B, C]."""
    probability, best = logits.float().softmax(-1).max(-1)
    return [Guess([i], p) for i, p in zip(best.tolist(), probability.tolist(), strict=True)]


def weighted(losses: Tensor, weights: Tensor | None) -> Loss:
    """Returns the sum of the losses of examples, [B], and their weight."""
    if weights is None:
        return Loss(losses.sum(), losses.new_tensor(float(len(losses))))
    return Loss((losses * weights).sum(), weights.sum())
