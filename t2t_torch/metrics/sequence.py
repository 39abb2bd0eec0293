"""Metrics of predicted ids, teacher forced.  tensor2tensor, `utils/metrics.py`.

Each takes logits [B, T, V] and targets [B, T] and returns the sum of its values and of their
weights.
"""

from __future__ import annotations

from torch import Tensor

from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.registry import register_metric
from t2t_torch.text.encoder import PAD

_TOP = 5


@register_metric("accuracy")
def accuracy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the tokens that are the most likely ones, and all tokens."""
    weights = targets != PAD
    return ((logits.argmax(-1) == targets) & weights).sum(), weights.sum()


@register_metric("accuracy_top5")
def accuracy_top5(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the tokens that are among the five most likely ones, and all tokens."""
    weights = targets != PAD
    best = logits.topk(min(_TOP, logits.size(-1)), dim=-1).indices  # [B, T, 5]
    return ((best == targets[..., None]).any(-1) & weights).sum(), weights.sum()


@register_metric("accuracy_per_sequence")
def accuracy_per_sequence(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sequences of which every token is the most likely one, and all sequences."""
    right = (logits.argmax(-1) == targets) | (targets == PAD)
    return right.all(-1).sum(), targets.new_tensor(len(targets))


@register_metric("neg_log_perplexity")
def neg_log_perplexity(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-likelihood of the tokens in nats, without label smoothing, and all tokens."""
    weights = targets != PAD
    return -(cross_entropy(logits, targets, 0.0) * weights).sum(), weights.sum()
