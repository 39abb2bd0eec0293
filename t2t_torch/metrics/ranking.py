"""Metrics of choices among candidates."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel, Feature
from t2t_torch.metrics.metric import Metric, counted, is_of
from t2t_torch.registry import register_metric


@register_metric("pairwise_accuracy")
@is_of(Choice)
def pairwise_accuracy(logits: Tensor, targets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the examples whose right candidate has the best score, and all.  [B, K], [B].

    Where k candidates share the best score it is one k-th right: equal scores are a draw by lot.
    """
    best = logits == logits.max(-1, keepdim=True).values  # [B, K]
    right = best.gather(-1, targets.clamp(min=0)[:, None]).squeeze(-1) & counts
    return (right.double() / best.sum(-1)).sum(), counts.sum()


class _OfQueries(Metric):
    """Keeps the score of each document at its place, so that batches and processes still add up.

    A document is relevant if its class is not the first; its score is the log-odds of that.  Of
    equal scores the documents that are not relevant come first.  Queries of which all documents are
    relevant, or none, do not count, as in WikiQA's own figures.
    """

    of = (ClassLabel,)
    reads_place = True

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self.make_room(1, 1)

    def make_room(self, queries: int, documents: int) -> None:
        """Takes two numbers for each document: its score, and 1 or, if it is relevant, 2."""
        self._shape = (queries, documents, 2)
        self.size = 2 * queries * documents

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns zeros: without places nothing is known of queries."""
        return torch.zeros(self.size, dtype=torch.float64, device=logits.device)

    def placed_update(self, logits: Tensor, targets: Tensor, place: Tensor) -> Tensor:
        """Returns scores and relevance at their places.  [B, C], [B], [B, 2]."""
        known = counted(self.feature, targets) & (targets >= 0)
        logits, targets, place = logits[known].double(), targets[known], place[known].long()
        scores = torch.logsumexp(logits[:, 1:], -1) - logits[:, 0]
        found = torch.stack([scores.nan_to_num(-1e30), 1.0 + (targets > 0).double()], -1)
        kept = self.update(logits, targets).view(self._shape)
        kept[place[:, 0], place[:, 1]] = found
        return kept.flatten()

    def _ranked(self, sums: Tensor) -> Tensor:
        """Whether the documents of the queries that count are relevant, by falling score.

        [queries, documents] bool; empty places are the last.
        """
        scores, kinds = sums.view(self._shape).unbind(-1)
        kept = (kinds == 1).any(1) & (kinds == 2).any(1)
        scores, kinds = scores[kept], kinds[kept]
        scores = scores.masked_fill(kinds == 0, -torch.inf)  # empty; all others are finite
        first = kinds.argsort(dim=-1, stable=True)  # among equals what is not relevant
        order = scores.gather(1, first).argsort(dim=-1, descending=True, stable=True)
        kinds = kinds.gather(1, first).gather(1, order)
        return kinds == 2


@register_metric("query_map")
class QueryMap(_OfQueries):
    """The mean over queries of the mean precision at the places of their relevant documents."""

    def result(self, sums: Tensor) -> float:
        """Returns the mean average precision; 0 over nothing."""
        relevant = self._ranked(sums)
        if not len(relevant):
            return 0.0
        hits = relevant.double()
        places = torch.arange(1, hits.size(1) + 1, dtype=torch.float64, device=hits.device)
        precision = hits.cumsum(1) / places
        return float(((precision * hits).sum(1) / hits.sum(1)).mean())


@register_metric("query_mrr")
class QueryMrr(_OfQueries):
    """The mean over queries of 1 / the place of the first relevant document."""

    def result(self, sums: Tensor) -> float:
        """Returns the mean reciprocal rank; 0 over nothing."""
        relevant = self._ranked(sums)
        return float((1.0 / (relevant.int().argmax(1) + 1)).mean()) if len(relevant) else 0.0
