"""Metrics of predicted ids, teacher forced.  tensor2tensor, `utils/metrics.py`.

Each takes logits [B, ..., V], targets [B, ...] and where they count, and returns the sum of its
values and of their weights.
"""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.metrics.metric import is_of
from t2t_torch.registry import register_metric

_TOP = 5


@register_metric("accuracy")
def accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids that are the most likely ones, and all.

    An unknown label is never right.  Of a distribution, [B, C], the most likely class is the id.
    """
    if targets.is_floating_point():
        targets = targets.argmax(-1)
    return ((logits.argmax(-1) == targets) & counted).sum(), counted.sum()


@register_metric("accuracy_top5")
@is_of(Text, Tags, ClassLabel, Choice)
def accuracy_top5(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids that are among the five most likely ones, and all."""
    best = logits.topk(min(_TOP, logits.size(-1)), dim=-1).indices  # [..., 5]
    return ((best == targets[..., None]).any(-1) & counted).sum(), counted.sum()


@register_metric("accuracy_per_sequence")
@is_of(Text, Tags)
def accuracy_per_sequence(
    logits: Tensor, targets: Tensor, counted: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the sequences of which every id is the most likely one, and all sequences."""
    right = (logits.argmax(-1) == targets) | ~counted
    return right.all(-1).sum(), targets.new_tensor(len(targets))


@register_metric("neg_log_perplexity")
def neg_log_perplexity(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-likelihood in nats, without label smoothing, and how many ids it is of.

    An unknown label has no likelihood, and does not count.
    """
    if targets.is_floating_point():
        return (targets * logits.float().log_softmax(-1)).sum(), counted.sum()
    known = counted & (targets >= 0)
    losses = cross_entropy(logits, targets.clamp(min=0), 0.0)
    return -(losses * known).sum(), known.sum()
