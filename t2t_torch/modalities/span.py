"""The first and the last word of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from t2t_torch.features import Span
from t2t_torch.modalities.label import TargetModality
from t2t_torch.modality import Guesses, log_mean_exp

MAX_WORDS = 30
"""Longest answer that is found, in words; PyText's SquadOutputLayer has the same."""


class SpanModality(TargetModality):
    """Two distributions over words: hidden [B, 1 + W, H] -> logits [B, 1 + W, 2].

    The first position stands for "no answer"; word i is position i + 1.
    """

    serves = Span

    @classmethod
    def size_of(cls, feature: Any) -> int:
        """Returns 2: each position is scored as a first and as a last word."""
        return 2

    def scores(self, logits: Tensor) -> Tensor:
        """Returns the scores of all words as the first, and as the last.  -> [B, 2, 1 + W]."""
        return logits.transpose(1, 2)

    def labels(self, targets: Tensor) -> Tensor:
        """Returns the positions of first and last word, 0 for no answer.  [B, 2] -> [B, 2]."""
        return targets + 1

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of the mean probability of each first and last word."""
        return log_mean_exp([one.float().log_softmax(1) for one in logits])

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the most likely first and last word of each example, -1 twice for no answer."""
        spans = best_spans(logits)
        first, last = logits.float().softmax(1).unbind(-1)
        there = first.gather(1, spans[:, :1] + 1) * last.gather(1, spans[:, 1:] + 1)
        return Guesses(spans, there.squeeze(1))


def best_spans(logits: Tensor) -> Tensor:
    """Returns the most likely first and last word, or -1 twice for no answer.

    Args:
      logits: [B, 1 + W, 2] of first and last words; position 0 stands for no answer.

    Returns:
      [B, 2] int64; the last is never before the first, nor `MAX_WORDS` or more behind it.
    """
    first, last = logits.float().log_softmax(1).unbind(-1)  # [B, 1 + W] each
    scores = first[:, 1:, None] + last[:, None, 1:]  # [B, W, W]
    width = scores.size(1)
    allowed = torch.ones(width, width, dtype=torch.bool, device=scores.device)
    allowed = allowed.triu().tril(MAX_WORDS - 1)
    flat = scores.masked_fill(~allowed, -torch.inf).flatten(1)
    score, place = flat.max(-1)
    first_word = torch.div(place, width, rounding_mode="floor")
    spans = torch.stack([first_word, place - first_word * width], -1)
    none = first[:, 0] + last[:, 0] > score
    return torch.where(none[:, None], -torch.ones_like(spans), spans)
