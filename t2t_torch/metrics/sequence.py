"""Metrics of predicted ids, teacher forced.  tensor2tensor, `utils/metrics.py`.

Each takes logits [B, ..., V], targets [B, ...] and where they count, and returns the sum of its
values and of their weights.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.features import Choice, ClassLabel, Tags, Text
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.metrics.metric import Metric, counted, is_of, quotient, sums_of
from t2t_torch.registry import register_metric


@register_metric("accuracy")
def accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids that are the most likely ones, and all.

    An unknown label is never right.  Of a distribution, [B, C], the most likely class is the id.
    """
    if targets.is_floating_point():
        targets = targets.argmax(-1)
    return ((logits.argmax(-1) == targets) & counted).sum(), counted.sum()


@register_metric("accuracy_top3")
@is_of(Text, Tags, ClassLabel, Choice)
def accuracy_top3(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids that are among the three most likely ones, and all."""
    return (_among(logits, targets, 3) & counted).sum(), counted.sum()


@register_metric("accuracy_top5")
@is_of(Text, Tags, ClassLabel, Choice)
def accuracy_top5(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids that are among the five most likely ones, and all."""
    return (_among(logits, targets, 5) & counted).sum(), counted.sum()


@register_metric("mean_reciprocal_rank")
@is_of(ClassLabel, Choice)
def mean_reciprocal_rank(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum of 1 / (place of the right one among the likeliest), and all.

    An unknown label adds 0.
    """
    found = 1.0 / (1.0 + _before(logits, targets).double())
    return (found * (counted & (targets >= 0))).sum(), counted.sum()


@register_metric("accuracy_per_sequence")
@is_of(Text, Tags)
def accuracy_per_sequence(
    logits: Tensor, targets: Tensor, counted: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the sequences of which every id is the most likely one, and all sequences."""
    right = (logits.argmax(-1) == targets) | ~counted
    return right.all(-1).sum(), targets.new_tensor(len(targets))


@register_metric("prefix_accuracy")
@is_of(Text, Tags)
def prefix_accuracy(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum of the sequences' shares before the first wrong id, and the sequences.

    A sequence without ids has no share, and does not count.
    """
    right = (logits.argmax(-1) == targets).long().cumprod(-1).bool()
    lengths = counted.sum(-1)  # [B]
    shares = (right & counted).sum(-1).double() / lengths.clamp(min=1)
    return shares.sum(), (lengths > 0).sum()


@register_metric("neg_log_perplexity")
def neg_log_perplexity(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-likelihood in nats, without label smoothing, and how many ids it is of.

    An unknown label has no likelihood, and does not count.
    """
    if targets.is_floating_point():
        return (targets * logits.float().log_softmax(-1)).double().sum(), counted.sum()
    known = counted & (targets >= 0)
    losses = cross_entropy(logits, targets.clamp(min=0), 0.0)
    # What does not count may be infinite, and 0 times that is no number.
    return -losses.double().masked_fill(~known, 0.0).sum(), known.sum()


@register_metric("masked_neg_log_perplexity")
class MaskedNegLogPerplexity(Metric):
    """The mean log-likelihood of the ids that a mask in the batch names.

    The mask of the target "targets" is the note "targets_mask" [B, T]: what is above 0 counts.
    """

    of = (Text, Tags)
    reads_mask = True

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the log-likelihood and the ids, as if the mask named all.  [B, T, V], [B, T]."""
        return self.masked_update(logits, targets, torch.ones_like(targets))

    def masked_update(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the log-likelihood and the ids.  [B, T, V], [B, T], [B, T']."""
        assert mask is not None, "Evaluation has seen that there is one"
        here = F.pad(mask[:, : targets.size(1)] > 0, (0, max(targets.size(1) - mask.size(1), 0)))
        right = here & counted(self.feature, targets)
        return sums_of(*neg_log_perplexity(logits, targets, right))

    def result(self, sums: Tensor) -> float:
        """Returns the mean; 0 over nothing."""
        return quotient(sums)


def _among(logits: Tensor, targets: Tensor, count: int) -> Tensor:
    """Returns whether the right id is among so many likeliest ones: [..., V], [...] -> [...]."""
    at = logits.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1)
    least = logits.topk(min(count, logits.size(-1)), dim=-1).values[..., -1]
    among = at > least
    last = at == least  # it is the last of them, or as likely: then the order of ids decides
    among[last] = _before(logits[last], targets[last]) < count
    return among & (targets >= 0)


def _before(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns how many ids are likelier than the right one: [..., V], [...] -> [...].

    Of equally likely ones the lower id comes first, as in tensor2tensor.  Before an unknown label,
    and before one whose logit is no number, come all.
    """
    at = logits.gather(-1, targets.clamp(min=0)[..., None])
    ids = torch.arange(logits.size(-1), device=logits.device)
    behind = (logits < at) | ((logits == at) & (ids >= targets[..., None]))
    return (~behind).sum(-1).masked_fill(targets < 0, logits.size(-1))
