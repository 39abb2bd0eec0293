"""Cross entropies, also focal ones, and the Kullback-Leibler divergence."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import Choice, ClassLabel, Feature, MultiLabel, SoftLabel, Span, Tags, Text
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
        self.is_soft = bool(feature.labels) and not feature.vocab_size  # a number for each
        smoothed = isinstance(feature, Text | ClassLabel | Tags)
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


@register_loss("binary_cross_entropy")
class BinaryCrossEntropy(TargetLoss):
    """Binary cross entropy of each class, averaged over classes.

    For single-label targets: one class against all others.  A class weight multiplies the loss of
    positive labels, like torch's `pos_weight`.
    """

    of = (MultiLabel, ClassLabel, Tags)
    reads = ()
    takes_class_weights = True

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_one = bool(feature.vocab_size)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per class.  [..., C], [...] or [B, C] -> [..., C]."""
        if self.is_one:
            labels = F.one_hot(labels.clamp(min=0), scores.size(-1))
        weights = self.class_weights if self.training else None
        return F.binary_cross_entropy_with_logits(
            scores.float(), labels.float(), pos_weight=weights, reduction="none"
        )


@register_loss("task_cross_entropy")
class TaskCrossEntropy(CrossEntropy):
    """Cross entropy in which, in TRAIN, each example of a `TaskMixtureProblem` has the weight 1.

    What follows the id of the task has `multiproblem_label_weight` of it, the inputs and that id
    have the rest; without inputs, or an id, all positions have the same weight.  tensor2tensor's
    `multiproblem_reweight_label_loss` takes these means over a batch; here they are of an example,
    so that no example depends on others.
    """

    of = (Text,)
    takes_class_weights = False

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.reads = ("label_smoothing", "multiproblem_label_weight")
        ids = getattr(feature.encoder, "task_ids", {}).values()
        self._tasks = min(ids, default=0), max(ids, default=-1)
        self._weight = hparams.multiproblem_label_weight

    @property
    def label_smoothing_alone(self) -> float | None:
        """None: positions have weights."""
        return None

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the weight of each position.  [B, T] -> [B, T]."""
        if not self.training:
            return None
        outputs = after_task(labels, *self._tasks)
        counted = labels != 0
        inputs = counted & ~outputs
        numbers = inputs.sum(1, keepdim=True), outputs.sum(1, keepdim=True)
        has_both = (numbers[0] > 1) & (numbers[1] > 0)
        share = torch.where(outputs, self._weight / numbers[1], (1 - self._weight) / numbers[0])
        even = 1.0 / counted.sum(1, keepdim=True).clamp(min=1)
        return torch.where(has_both, share, even) * counted


def after_task(labels: Tensor, first: int, last: int) -> Tensor:
    """Returns which positions follow a task's id, from `first` to `last`, without padding.

    [B, T] -> [B, T] bool.
    """
    markers = (labels >= first) & (labels <= last)
    return (markers.cumsum(1) - markers.long() > 0) & (labels != 0)


@register_loss("focal")
class Focal(ClassLoss):
    """(1 - p)^gamma times the cross entropy, where p is the probability of the correct label.

    Lin et al. 2017, "Focal loss for dense object detection", arXiv:1708.02002, equation 5.  Its
    class weight alpha is `focal_alpha` for multi-label targets (1 - alpha for absent classes), and
    `class_weights` for single-label targets.
    """

    of = (Text, ClassLabel, Tags, Choice, Span, MultiLabel)

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.is_binary = bool(feature.labels) and not feature.vocab_size  # a number for each
        self.gamma = hparams.focal_gamma
        self.alpha = hparams.focal_alpha
        self.reads = ("focal_gamma", "focal_alpha") if self.is_binary else ("focal_gamma",)

    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss per label.  [..., V], [...]; for `MultiLabel` [B, C], [B, C]."""
        if self.is_binary:
            there = labels.bool()
            log_p = F.logsigmoid(torch.where(there, scores, -scores).float())
            alpha = torch.where(there, self.alpha, 1.0 - self.alpha)
            values = alpha * self._focused(log_p)
            if self.class_weights is not None and self.training:
                values = values * torch.where(there, self.class_weights, 1.0)
            return values
        log_p = scores.float().log_softmax(-1)
        return self._focused(log_p.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1))

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the class weights of the labels; for `MultiLabel` `values` includes them."""
        return None if self.is_binary else super().weights(labels)

    def _focused(self, log_p: Tensor) -> Tensor:
        # 1 - p, exact near 0; the clamp keeps its gradient finite for gamma below 1.
        missing = (-torch.expm1(log_p)).clamp(min=1e-12)
        return -(missing**self.gamma) * log_p
