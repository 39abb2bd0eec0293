"""The logarithm of what a model gives the right class, and of a distribution to match."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, SoftLabel, Span, Tags, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.loss import ClassLoss, TargetLoss
from t2t_torch.registry import register_loss


@register_loss("cross_entropy")
class CrossEntropy(ClassLoss):
    """Cross entropy, smoothed in TRAIN as tensor2tensor does; ends and candidates are not.

    With two candidates that is the logistic loss of the difference of their scores.  Burges et al.
    2005, "Learning to rank using gradient descent".
    """

    of = (Text, ClassLabel, Tags, Choice, Span, SoftLabel)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_soft = not feature.is_discrete
        smoothed = feature.is_text or feature.classifies
        self.label_smoothing = hparams.label_smoothing if smoothed else 0.0
        self.reads = ("label_smoothing",) if smoothed else ()

    @property
    def label_smoothing_alone(self) -> float | None:
        """What is smoothed now: 0 in EVAL; None of probabilities, and with weights of classes."""
        if self.is_soft or self.class_weights is not None:
            return None
        return self.label_smoothing if self.training else 0.0

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the cross entropy of each label, or of each row of probabilities.  [...]."""
        if self.is_soft:
            return -_weighed(self, labels * scores.float().log_softmax(-1)).sum(-1)
        label_smoothing = self.label_smoothing if self.training else 0.0
        return cross_entropy(scores, labels.clamp(min=0), label_smoothing)

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the weights of the labels' classes; of probabilities `values` has them in."""
        return None if self.is_soft else super().weights(labels)


@register_loss("kl")
class KullbackLeibler(TargetLoss):
    """The divergence of the model's distribution from the target's: 0 where it is met."""

    of = (SoftLabel,)
    reads = ()
    takes_class_weights = True

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the divergence of each row.  [B, C], [B, C] -> [B]."""
        log_labels = labels.clamp(min=1e-30).log()  # what has no probability adds 0 * log 1e-30
        return _weighed(self, labels * (log_labels - scores.float().log_softmax(-1))).sum(-1)


def _weighed(loss: TargetLoss, terms: Tensor) -> Tensor:
    """Multiplies a term of each class, [..., C], by the class's weight; in TRAIN."""
    if loss.class_weights is None or not loss.training:
        return terms
    return terms * loss.class_weights
