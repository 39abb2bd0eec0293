"""Cross entropy of a language model of several tasks, with a weight of the tasks' targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from t2t_torch.features import Text
from t2t_torch.hparam import HParams
from t2t_torch.losses.cross_entropy import CrossEntropy
from t2t_torch.registry import register_loss


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
