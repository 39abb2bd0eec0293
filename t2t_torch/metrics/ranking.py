"""Ranking metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Feature
from t2t_torch.metrics.metric import Metric, Sums, counted, is_of
from t2t_torch.registry import register_metric


@register_metric("pairwise_accuracy")
@is_of(Choice)
def pairwise_accuracy(logits: Tensor, targets: Tensor, counts: Tensor) -> Sums:
    """Returns the examples whose correct candidate has the best score, and all.  [B, K], [B].

    If k candidates share the best score, the example counts 1/k: ties are broken at random.
    """
    best = logits == logits.max(-1, keepdim=True).values  # [B, K]
    right = best.gather(-1, targets.clamp(min=0)[:, None]).squeeze(-1) & counts
    return (right.double() / best.sum(-1)).sum(), counts.sum()


class _OfQueries(Metric):
    """Stores the score of each document at its position, so sums over batches and processes work.

    A document is relevant if its class is not the first; its score is the log-odds of that.  Ties
    place irrelevant documents first.  Queries whose documents are all relevant or all irrelevant
    are ignored, as in the WikiQA paper.
    """

    of = (ClassLabel,)
    reads_place = True

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self.make_room(1, 1)

    def make_room(self, queries: int, documents: int) -> None:
        """Allocates two numbers per document: its score, and 1 or, if relevant, 2."""
        self._shape = (queries, documents, 2)
        self.size = 2 * queries * documents

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns zeros: without positions the queries are unknown."""
        return torch.zeros(self.size, dtype=torch.float64, device=logits.device)

    def placed_update(self, logits: Tensor, targets: Tensor, place: Tensor) -> Tensor:
        """Returns scores and relevance at their positions.  [B, C], [B], [B, 2]."""
        known = counted(self.feature, targets) & (targets >= 0)
        logits, targets, place = logits[known].double(), targets[known], place[known].long()
        scores = torch.logsumexp(logits[:, 1:], -1) - logits[:, 0]
        found = torch.stack([scores.nan_to_num(-1e30), 1.0 + (targets > 0).double()], -1)
        kept = self.update(logits, targets).view(self._shape)
        kept[place[:, 0], place[:, 1]] = found
        return kept.flatten()

    def _ranked(self, sums: Tensor) -> Tensor:
        """Returns the relevance of the documents of each counted query, by falling score.

        [queries, documents] bool; empty positions come last.
        """
        scores, kinds = sums.view(self._shape).unbind(-1)
        kept = (kinds == 1).any(1) & (kinds == 2).any(1)
        scores, kinds = scores[kept], kinds[kept]
        scores = scores.masked_fill(kinds == 0, -torch.inf)  # empty; all others are finite
        first = kinds.argsort(dim=-1, stable=True)  # irrelevant documents first among equals
        order = scores.gather(1, first).argsort(dim=-1, descending=True, stable=True)
        kinds = kinds.gather(1, first).gather(1, order)
        return kinds == 2


@register_metric("query_map")
class QueryMap(_OfQueries):
    """Mean over queries of the average precision at their relevant documents."""

    def result(self, sums: Tensor) -> float:
        """Returns the mean average precision; 0 without queries."""
        relevant = self._ranked(sums)
        if not len(relevant):
            return 0.0
        hits = relevant.double()
        places = torch.arange(1, hits.size(1) + 1, dtype=torch.float64, device=hits.device)
        precision = hits.cumsum(1) / places
        return float(((precision * hits).sum(1) / hits.sum(1)).mean())


@register_metric("query_mrr")
class QueryMrr(_OfQueries):
    """Mean over queries of the reciprocal rank of the first relevant document."""

    def result(self, sums: Tensor) -> float:
        """Returns the mean reciprocal rank; 0 without queries."""
        relevant = self._ranked(sums)
        return float((1.0 / (relevant.int().argmax(1) + 1)).mean()) if len(relevant) else 0.0
