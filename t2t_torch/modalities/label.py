"""Modalities of classes, numbers and answer spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, Feature, MultiLabel, Real, SoftLabel, Span
from t2t_torch.hparam import HParams
from t2t_torch.loss import average
from t2t_torch.modality import BatchPrediction, Modality, log_mean_exp


class TargetModality(Modality):
    """Base class of modalities that are never inputs.

    Args:
      hparams: hidden_size.
      feature: the target; see `size_of`.
    """

    default_loss = "cross_entropy"
    is_distribution = True

    def __init__(self, hparams: HParams, feature: Any) -> None:
        super().__init__()
        self.bottom = None
        self.top = nn.Linear(hparams.hidden_size, self.size_of(feature))

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Creates the modality of a target."""
        if not is_target:
            raise HParamsError(f"a {type(feature).__name__} can be a target, but no input.")
        return cls(hparams, feature)

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns the number of logits per example."""
        return len(feature.labels)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each example.  [B, ...] -> [B, 1] bool."""
        return torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns the logarithms of the scores.  [B, C]."""
        return _log_of(_by_label(feature, scores)).float()


class ClassLabelModality(TargetModality):
    """Modality of class labels: hidden [B, H] -> logits [B, C]; unknown classes have no loss."""

    serves: ClassVar[type[Feature]] = ClassLabel

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 if the class is known, else 0.  [B] -> [B]."""
        return (targets >= 0).float()

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the most likely class of each example."""
        scores = logits.float().softmax(-1)
        probability, best = scores.max(-1)
        return BatchPrediction(best[:, None], probability, scores)


class ChoiceModality(ClassLabelModality):
    """Modality of choices among inputs: hidden [B, K, H] -> scores of candidates [B, K]."""

    serves = Choice

    def __init__(self, hparams: HParams, feature: Any) -> None:
        super().__init__(hparams, feature)
        self.top = ScoreLayer(hparams.hidden_size)


class ScoreLayer(nn.Linear):
    """Linear layer with a single output: [..., H] -> [...].

    Args:
      hidden_size: H.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1)

    def forward(self, input: Tensor) -> Tensor:
        """[..., H] -> [...] float32."""
        return super().forward(input).squeeze(-1).float()


class MultiLabelModality(TargetModality):
    """Modality of multiple labels: hidden [B, H] -> an independent logit per class [B, C]."""

    serves = MultiLabel
    default_loss = "binary_cross_entropy"

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns the log-odds of each class.  [B, C]."""
        found = _by_label(feature, scores)
        return (_log_of(found) - _log_of(1.0 - found)).float()

    def alternatives(self, logits: Tensor) -> Tensor:
        """Returns the scores of "absent" and "present" of each class.  [B, C] -> [B, C, 2]."""
        return torch.stack([torch.zeros_like(logits), logits], -1)

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the log-odds of the mean of the probabilities of "present".  [B, C] each."""
        there, absent = ([F.logsigmoid(sign * one.float()) for one in logits] for sign in (1, -1))
        return log_mean_exp(there) - log_mean_exp(absent)

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns 1 for each class with a probability above 0.5."""
        probability = F.logsigmoid(logits.float().abs()).sum(-1).exp()
        return BatchPrediction((logits > 0).long(), probability, logits.float().sigmoid())


class SoftLabelModality(TargetModality):
    """Modality of distributions over classes: hidden [B, H] -> logits [B, C]."""

    serves = SoftLabel

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns the logarithms of the distributions, which are the values.  [B, C]."""
        return super().answer_logits(feature, values, values, targets)

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the probability of each class."""
        return BatchPrediction(logits.float().softmax(-1))


_LEAST = 1e-30  # least probability, to have a logarithm


def _by_label(feature: Any, rows: Sequence[Mapping[str, float]]) -> Tensor:
    """Returns scores in the order of the labels.  [B, C] float64."""
    return torch.tensor(
        [[row[label] for label in feature.labels] for row in rows], dtype=torch.float64
    )


def _log_of(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=_LEAST).log()


class NumbersEmbedding(nn.Linear):
    """Embeds all numbers as one position of a sequence: [B, size] -> [B, 1, H]."""

    def forward(self, input: Tensor) -> Tensor:
        """[B, size] -> [B, 1, H]."""
        return super().forward(input)[:, None]


class RealModality(Modality):
    """Modality of numbers: bottom [B, size] -> [B, 1, H], top [B, H] -> [B, size].

    Args:
      hparams: hidden_size.
      size: number of numbers.
      is_target: True for a target, False for an input.
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
        """Creates the modality of a feature."""
        return cls(hparams, feature.size, is_target=is_target)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each example.  [B, size] -> [B, 1] bool."""
        return torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)

    def distill(
        self, scores: Sequence[Tensor], taught: Tensor, axes: int, *, weight: float, heat: float
    ) -> Tensor:
        """Returns the weighted loss of each example, with the teacher's numbers as targets."""
        assert self.target_loss is not None
        return weight * average([self.target_loss.values(one, taught) for one in scores], axes)

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns the standardized numbers.  [B, size]."""
        return torch.tensor([feature.encode(value) for value in values])

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the numbers."""
        return BatchPrediction(logits.float())


MAX_WORDS = 30
"""Longest answer that is found, in words; PyText's SquadOutputLayer has the same."""


class SpanModality(TargetModality):
    """Modality of answer spans: hidden [B, 1 + W, H] -> logits of both ends [B, 1 + W, 2].

    The first position is "no answer"; word i is position i + 1.
    """

    serves = Span

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns 2: each position has scores as the first and as the last word."""
        return 2

    def scores(self, logits: Tensor) -> Tensor:
        """Returns the scores of the first and of the last word.  -> [B, 2, 1 + W]."""
        return logits.transpose(1, 2)

    def labels(self, targets: Tensor) -> Tensor:
        """Returns the positions of first and last word, 0 for no answer.  [B, 2] -> [B, 2]."""
        return targets + 1

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of the mean probability of each first and last word."""
        return log_mean_exp([one.float().log_softmax(1) for one in logits])

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the most likely first and last word of each example, -1 twice for no answer."""
        spans = best_spans(logits)
        first, last = logits.float().softmax(1).unbind(-1)
        there = first.gather(1, spans[:, :1] + 1) * last.gather(1, spans[:, 1:] + 1)
        return BatchPrediction(spans, there.squeeze(1))


def best_spans(logits: Tensor) -> Tensor:
    """Returns the most likely first and last word, or -1 twice for no answer.

    Args:
      logits: scores of first and last words, [B, 1 + W, 2]; position 0 is "no answer".

    Returns:
      [B, 2] int64; the last word is at most `MAX_WORDS` - 1 words after the first.
    """
    first, last = logits.float().log_softmax(1).unbind(-1)  # [B, 1 + W] each
    scores = first[:, 1:, None] + last[:, None, 1:]  # [B, W, W]
    width = scores.size(1)
    allowed = torch.ones(width, width, dtype=torch.bool, device=scores.device)
    allowed = allowed.triu().tril(MAX_WORDS - 1)
    flat = scores.masked_fill(~allowed, -torch.inf).flatten(1)
    score, place = flat.max(-1)
    first_word = torch.div(place, width, rounding_mode="floor")
    spans = torch.stack([first_word, place - first_word * width], -1)
    none = first[:, 0] + last[:, 0] > score
    return torch.where(none[:, None], -torch.ones_like(spans), spans)
