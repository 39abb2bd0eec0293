"""Classes: a linear map of what the model makes of an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, MultiLabel, SoftLabel
from t2t_torch.hparam import HParams
from t2t_torch.modality import Guesses, Modality, log_mean_exp


class TargetModality(Modality):
    """What is only ever a target: nothing of it is given to a model.

    Args:
      hparams: hidden_size.
      size: logits of an example.
    """

    default_loss = "cross_entropy"
    is_distribution = True

    def __init__(self, hparams: HParams, size: int) -> None:
        super().__init__()
        self.bottom = None
        self.top = nn.Linear(hparams.hidden_size, size)

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
        return torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)


class ClassLabelModality(TargetModality):
    """One of several classes: hidden [B, H] -> logits [B, C]; an unknown class has no loss."""

    serves = ClassLabel

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 where the class is known.  [B] -> [B]."""
        return (targets >= 0).float()

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the most likely class of each example."""
        return best_classes(logits)


class ChoiceModality(TargetModality):
    """One of several inputs: hidden [B, K, H] -> a score of each candidate [B, K]."""

    serves = Choice

    def __init__(self, hparams: HParams, size: int) -> None:
        super().__init__(hparams, size)
        self.top = Score(hparams.hidden_size)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 where there is a choice.  [B] -> [B]."""
        return (targets >= 0).float()

    def guess(self, logits: Tensor) -> Guesses:
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
    default_loss = "binary_cross_entropy"

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the number of classes."""
        return int(feature.shape[0])

    def alternatives(self, logits: Tensor) -> Tensor:
        """Returns the scores of "not there" and "there" for each class.  [B, C] -> [B, C, 2]."""
        return torch.stack([torch.zeros_like(logits), logits], -1)

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the log-odds of the mean of the probabilities of "there".  [B, C] each."""
        there, absent = ([F.logsigmoid(sign * one.float()) for one in logits] for sign in (1, -1))
        return log_mean_exp(there) - log_mean_exp(absent)

    def guess(self, logits: Tensor) -> Guesses:
        """Returns 1 for each class that is likelier than not."""
        probability = F.logsigmoid(logits.float().abs()).sum(-1).exp()
        return Guesses((logits > 0).long(), probability, logits.float().sigmoid())


class SoftLabelModality(TargetModality):
    """A probability of each class: hidden [B, H] -> logits [B, C]."""

    serves = SoftLabel

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the number of classes."""
        return int(feature.shape[0])

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the probability of each class."""
        return Guesses(logits.float().softmax(-1))


def best_classes(logits: Tensor) -> Guesses:
    """Returns the most likely class of each row of [B, C]."""
    scores = logits.float().softmax(-1)
    probability, best = scores.max(-1)
    return Guesses(best[:, None], probability, scores)
