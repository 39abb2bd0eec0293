"""Metrics of spans: those of tags, and those that answer a question."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import IGNORED, Span, Tags
from t2t_torch.metrics.metric import Metric, quotient
from t2t_torch.modalities.span import best_spans
from t2t_torch.registry import register_metric
from t2t_torch.text.spans import UNKNOWN_TAG, spans_of


@register_metric("span_f1")
class SpanF1(Metric):
    """F1 of the spans that tags mark: right are those of the same words and kind (conlleval)."""

    of = (Tags,)
    size = 3

    def __init__(self, feature: Tags) -> None:
        super().__init__(feature)
        self._labels = feature.encoder.labels

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the spans that are right, found, and there.  [B, W, C], [B, W]."""
        right = found = there = 0
        for guessed, row in zip(logits.argmax(-1).tolist(), targets.tolist(), strict=True):
            places = [i for i, tag in enumerate(row) if tag != IGNORED]
            ours = set(spans_of([self._labels[guessed[i]] for i in places]))
            known = (self._labels[row[i]] if row[i] >= 0 else UNKNOWN_TAG for i in places)
            theirs = set(spans_of(list(known)))
            right += len(ours & theirs)
            found += len(ours)
            there += len(theirs)
        return torch.tensor([right, found, there], dtype=torch.float64)

    def result(self, sums: Tensor) -> float:
        """Returns the harmonic mean of precision and recall; 0 where nothing is right."""
        right, found, there = sums.tolist()
        return 2 * right / (found + there) if right else 0.0


@register_metric("answer_exact_match")
class AnswerExactMatch(Metric):
    """The share of examples whose answer is found to the word, also that there is none.

    An example is one window of a text: a question about a long text counts once for each of its
    windows, most of which hold no answer.  Of several answers only the first is compared with.
    """

    of = (Span,)

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the right answers and the examples.  [B, 1 + W, 2], [B, 2]."""
        right = (best_spans(logits) == targets).all(-1).sum()
        return torch.tensor([right, len(targets)], dtype=torch.float64)

    def result(self, sums: Tensor) -> float:
        """Returns the share."""
        return quotient(sums)


@register_metric("answer_f1")
class AnswerF1(AnswerExactMatch):
    """The mean over examples of the F1 of the words that the answer and ours have in common.

    Examples are windows, as in `AnswerExactMatch`.  Words count by their places.  SQuAD's own F1
    counts them by their spelling, without articles.
    """

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sum of the examples' F1, and the examples.  [B, 1 + W, 2], [B, 2]."""
        ours = best_spans(logits)
        common = torch.minimum(ours[:, 1], targets[:, 1]) - torch.maximum(ours[:, 0], targets[:, 0])
        common = (common + 1).clamp(min=0)
        lengths = (ours[:, 1] - ours[:, 0] + 1) + (targets[:, 1] - targets[:, 0] + 1)
        f1 = 2 * common / lengths
        no_answer = (ours[:, 0] < 0) | (targets[:, 0] < 0)
        f1 = torch.where(no_answer, (ours == targets).all(-1).to(f1.dtype), f1)
        return torch.tensor([f1.sum(), len(targets)], dtype=torch.float64)
