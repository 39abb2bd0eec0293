"""tensor2tensor's metrics of one-hot and of two classes (`utils/metrics.py`), under its names."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Feature, MultiLabel
from t2t_torch.metrics.metric import Function, Mean, is_error, is_of
from t2t_torch.metrics.sequence import accuracy, neg_log_perplexity
from t2t_torch.registry import register_metric


@register_metric("sigmoid_precision_one_hot")
@register_metric("sigmoid_recall_one_hot")
@register_metric("sigmoid_accuracy_one_hot")
@register_metric("sigmoid_accuracy")
@is_of(ClassLabel)
def sigmoid_accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the examples whose class has the greatest sigmoid, and all.

    That is the class with the greatest logit; with one class taken and one class right for each
    example, precision and recall over all of them are the accuracy too.
    """
    return accuracy(logits, targets, counted)


@register_metric("softmax_cross_entropy_one_hot")
@is_error
@is_of(ClassLabel)
def softmax_cross_entropy_one_hot(
    logits: Tensor, targets: Tensor, counted: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the cross entropy in nats and the examples; an unknown class does not count."""
    value, weight = neg_log_perplexity(logits, targets, counted)
    return -value, weight


@register_metric("sigmoid_cross_entropy_one_hot")
@is_error
@is_of(ClassLabel, MultiLabel)
def sigmoid_cross_entropy_one_hot(
    logits: Tensor, targets: Tensor, counted: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the binary cross entropies of all classes, in nats, and how many they are.

    An unknown class is none of them.
    """
    if targets.dim() < logits.dim():
        targets = targets[:, None] == torch.arange(logits.size(-1), device=targets.device)
    losses = F.binary_cross_entropy_with_logits(
        logits.double(), (targets > 0).double(), reduction="none"
    )
    return losses.sum(), losses.new_tensor(losses.numel())


class _TwoClasses(Mean):
    """A mean over examples of one of two classes.

    Raises:
      UsageError: there are not two classes.
    """

    of = (ClassLabel,)
    function: ClassVar[tuple[Function]]  # in a tuple it is no method

    def __init__(self, feature: Feature) -> None:
        if feature.vocab_size != 2:
            raise UsageError(
                f"a metric of two classes was asked for, and there are {feature.vocab_size}. "
                "Take 'accuracy' or 'neg_log_perplexity'."
            )
        super().__init__(feature, self.function[0])


@register_metric("two_class_accuracy")
class TwoClassAccuracy(_TwoClasses):
    """The share of examples whose class is the likelier of two."""

    function = (accuracy,)


@register_metric("two_class_log_likelihood")
class TwoClassLogLikelihood(_TwoClasses):
    """The mean log-likelihood of the right one of two classes, in nats."""

    function = (neg_log_perplexity,)
