"""Teacher-forced metrics of predicted ids.  tensor2tensor, `utils/metrics.py`.

Each takes logits [B, ..., V], targets [B, ...] and a mask of counted targets, and returns the sum
of its values and of their weights.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.metrics.metric import Metric, Sums, counted, is_of, sums_of
from t2t_torch.registry import register_metric


@register_metric("accuracy")
def accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the correctly predicted ids, and all.

    An unknown label always counts as wrong.  For a distribution, [B, C], the target is its most
    likely class.
    """
    if targets.is_floating_point():
        targets = targets.argmax(-1)
    return ((logits.argmax(-1) == targets) & counted).sum(), counted.sum()


@register_metric("accuracy_top3")
@is_of(Text, Tags, ClassLabel, Choice)
def accuracy_top3(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the ids among the three most likely ones, and all."""
    return (_among(logits, targets, 3) & counted).sum(), counted.sum()


@register_metric("accuracy_top5")
@is_of(Text, Tags, ClassLabel, Choice)
def accuracy_top5(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the ids among the five most likely ones, and all."""
    return (_among(logits, targets, 5) & counted).sum(), counted.sum()


@register_metric("mean_reciprocal_rank")
@is_of(ClassLabel, Choice)
def mean_reciprocal_rank(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the sum of reciprocal ranks of the correct ids, and all.

    An unknown label adds 0.
    """
    found = 1.0 / (1.0 + _before(logits, targets).double())
    return (found * (counted & (targets >= 0))).sum(), counted.sum()


@register_metric("accuracy_per_sequence")
@is_of(Text, Tags)
def accuracy_per_sequence(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the sequences whose ids are all predicted correctly, and all sequences."""
    right = (logits.argmax(-1) == targets) | ~counted
    return right.all(-1).sum(), targets.new_tensor(len(targets))


@register_metric("prefix_accuracy")
@is_of(Text, Tags)
def prefix_accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the summed fractions of each sequence before its first wrong id, and the sequences.

    Empty sequences are ignored.
    """
    right = (logits.argmax(-1) == targets).long().cumprod(-1).bool()
    lengths = counted.sum(-1)  # [B]
    shares = (right & counted).sum(-1).double() / lengths.clamp(min=1)
    return shares.sum(), (lengths > 0).sum()


@register_metric("neg_log_perplexity")
def neg_log_perplexity(logits: Tensor, targets: Tensor, counted: Tensor) -> Sums:
    """Returns the log-likelihood in nats, without label smoothing, and the number of ids.

    Unknown labels are ignored.
    """
    if targets.is_floating_point():
        return (targets * logits.float().log_softmax(-1)).double().sum(), counted.sum()
    known = counted & (targets >= 0)
    losses = cross_entropy(logits, targets.clamp(min=0), 0.0)
    # Ignored values may be infinite, and 0 times infinity is NaN.
    return -losses.double().masked_fill(~known, 0.0).sum(), known.sum()


@register_metric("masked_neg_log_perplexity")
class MaskedNegLogPerplexity(Metric):
    """Mean log-likelihood of the ids selected by a mask in the batch.

    The mask of the target "targets" is the annotation "targets_mask" [B, T]: values above 0 count.
    """

    of = (Text, Tags)
    reads = "mask"

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the log-likelihood and the ids without a mask.  [B, T, V], [B, T]."""
        return self.noted_update(logits, targets, torch.ones_like(targets))

    def noted_update(self, logits: Tensor, targets: Tensor, note: Tensor) -> Tensor:
        """Returns the log-likelihood and the ids.  [B, T, V], [B, T], [B, T']."""
        here = F.pad(note[:, : targets.size(1)] > 0, (0, max(targets.size(1) - note.size(1), 0)))
        right = here & counted(self.feature, targets)
        return sums_of(*neg_log_perplexity(logits, targets, right))


def _among(logits: Tensor, targets: Tensor, count: int) -> Tensor:
    """Returns whether the correct id is in the top `count`: [..., V], [...] -> [...]."""
    at = logits.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
    least = logits.topk(min(count, logits.size(-1)), dim=-1).values[..., -1]
    among = at > least
    last = at == least  # a tie with the last of them: the order of ids decides
    among[last] = _before(logits[last], targets[last]) < count
    return among & (targets >= 0)


def _before(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the number of ids ranked before the correct one: [..., V], [...] -> [...].

    Ties are ordered by id, as in tensor2tensor.  All ids rank before an unknown label and before a
    label with a NaN logit.
    """
    at = logits.gather(-1, targets.clamp(min=0)[..., None])
    ids = torch.arange(logits.size(-1), device=logits.device)
    behind = (logits < at) | ((logits == at) & (ids >= targets[..., None]))
    return (~behind).sum(-1).masked_fill(targets < 0, logits.size(-1))
