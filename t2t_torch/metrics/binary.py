"""tensor2tensor's metrics for one-hot and two-class targets (`utils/metrics.py`)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Feature, MultiLabel
from t2t_torch.metrics.metric import Function, Mean, Sums, is_error, is_of
from t2t_torch.metrics.sequence import accuracy, neg_log_perplexity
from t2t_torch.registry import register_metric


@register_metric("sigmoid_precision_one_hot")
@register_metric("sigmoid_recall_one_hot")
@register_metric("sigmoid_accuracy_one_hot")
@register_metric("sigmoid_accuracy")
@is_of(ClassLabel)
def sigmoid_accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the examples whose class has the greatest sigmoid, and all examples.

    That is the class with the greatest logit.  With one predicted and one correct class per
    example, micro precision and recall equal this accuracy.
    """
    return accuracy(logits, targets, counted)


@register_metric("softmax_cross_entropy_one_hot")
@is_error
@is_of(ClassLabel)
def softmax_cross_entropy_one_hot(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the cross entropy in nats and the examples; unknown classes are ignored."""
    value, weight = neg_log_perplexity(logits, targets, counted)
    return -value, weight


@register_metric("sigmoid_cross_entropy_one_hot")
@is_error
@is_of(ClassLabel, MultiLabel)
def sigmoid_cross_entropy_one_hot(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the binary cross entropies of all classes, in nats, and their number.

    For an unknown class all classes are negative.
    """
    if targets.dim() < logits.dim():
        targets = targets[:, None] == torch.arange(logits.size(-1), device=targets.device)
    losses = F.binary_cross_entropy_with_logits(
        logits.double(), (targets > 0).double(), reduction="none"
    )
    return losses.sum(), losses.new_tensor(losses.numel())


class _TwoClasses(Mean):
    """Mean over examples with two classes.

    Raises:
      UsageError: the target does not have two classes.
    """

    of = (ClassLabel,)
    function: ClassVar[tuple[Function]]  # a tuple, so that it does not become a method

    def __init__(self, feature: Feature) -> None:
        if feature.vocab_size != 2:
            raise UsageError(
                f"this metric is for two classes, but there are {feature.vocab_size}. "
                "Take 'accuracy' or 'neg_log_perplexity'."
            )
        super().__init__(feature, self.function[0])


@register_metric("two_class_accuracy")
class TwoClassAccuracy(_TwoClasses):
    """Fraction of examples whose correct class is the more likely of two."""

    function = (accuracy,)


@register_metric("two_class_log_likelihood")
class TwoClassLogLikelihood(_TwoClasses):
    """Mean log-likelihood of the correct one of two classes, in nats."""

    function = (neg_log_perplexity,)
