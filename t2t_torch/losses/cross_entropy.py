"""Cross entropy and Kullback-Leibler divergence."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Feature, SoftLabel, Span, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.loss import ClassLoss, TargetLoss
from t2t_torch.registry import register_loss


@register_loss("cross_entropy")
class CrossEntropy(ClassLoss):
    """Cross entropy with tensor2tensor's label smoothing in TRAIN, except for spans and candidates.

    For two candidates it is the logistic loss of the difference of their scores.  Burges et al.
    2005, "Learning to rank using gradient descent".
    """

    of: ClassVar[tuple[type[Feature], ...]] = (Text, ClassLabel, Tags, Choice, Span, SoftLabel)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_soft = not feature.is_discrete
        smoothed = feature.is_text or feature.classifies
        self.label_smoothing = hparams.label_smoothing if smoothed else 0.0
        self.reads = ("label_smoothing",) if smoothed else ()

    @property
    def label_smoothing_alone(self) -> float | None:
        """The smoothing in effect: 0 in EVAL; None for probabilities and with class weights."""
        if self.is_soft or self.class_weights is not None:
            return None
        return self.label_smoothing if self.training else 0.0

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the cross entropy per label, or per row of probabilities.  [...]."""
        if self.is_soft:
            return -_weighed(self, labels * scores.float().log_softmax(-1)).sum(-1)
        label_smoothing = self.label_smoothing if self.training else 0.0
        return cross_entropy(scores, labels.clamp(min=0), label_smoothing)

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the class weights of the labels; for probabilities `values` includes them."""
        return None if self.is_soft else super().weights(labels)


@register_loss("kl")
class KullbackLeibler(TargetLoss):
    """Kullback-Leibler divergence of the model's distribution from the target's."""

    of = (SoftLabel,)
    reads = ()
    takes_class_weights = True

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the divergence per row.  [B, C], [B, C] -> [B]."""
        log_labels = labels.clamp(min=1e-30).log()  # zero probabilities contribute 0 * log 1e-30
        return _weighed(self, labels * (log_labels - scores.float().log_softmax(-1))).sum(-1)


def _weighed(loss: TargetLoss, terms: Tensor) -> Tensor:
    """Multiplies the terms of each class, [..., C], by the class weights; in TRAIN."""
    if loss.class_weights is None or not loss.training:
        return terms
    return terms * loss.class_weights
