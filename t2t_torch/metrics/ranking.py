"""Ranking metrics."""

from __future__ import annotations

import abc
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t2t_torch.features import Choice, ClassLabel
from t2t_torch.metrics.metric import Metric, Sums, counted, is_of
from t2t_torch.registry import register_metric

_Numbers: TypeAlias = npt.NDArray[Any]


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
    """Keeps the query, the score and the relevance of each document.

    A document is relevant if its class is not the first; its score is the log-odds of that.  Ties
    place irrelevant documents first.  Queries whose documents are all relevant or all irrelevant
    are ignored, as in the WikiQA paper.
    """

    of = (ClassLabel,)
    reads = "query"
    keeps_rows = True
    size = 3

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the rows of documents of one query."""
        return self.noted_update(logits, targets, torch.zeros_like(targets))

    def noted_update(self, logits: Tensor, targets: Tensor, note: Tensor) -> Tensor:
        """Returns the rows of documents and their queries.  [B, C], [B], [B] -> [n, 3] float64."""
        known = counted(self.feature, targets) & (targets >= 0)
        logits, targets, queries = logits[known].double(), targets[known], note[known].double()
        scores = torch.logsumexp(logits[:, 1:], -1) - logits[:, 0]
        return torch.stack([queries, scores.nan_to_num(-1e30), (targets > 0).double()], -1)

    def result(self, sums: Tensor) -> float:
        """Returns the mean over queries; 0 without queries."""
        queries, scores, relevant = sums.numpy().T
        order = np.lexsort((relevant, -scores, queries))
        _, query, sizes = np.unique(queries[order], return_inverse=True, return_counts=True)
        first = np.cumsum(sizes) - sizes
        ranks = np.arange(len(query)) - first[query] + 1
        found = np.bincount(query, relevant[order], len(sizes))
        counts = ((found > 0) & (found < sizes))[query] & (relevant[order] > 0)
        if not counts.any():
            return 0.0
        hits = np.cumsum(relevant[order]) - (np.cumsum(found) - found)[query]
        values = self.values(ranks[counts], hits[counts], found[query][counts])
        return float(values.sum() / len(np.unique(query[counts])))

    @abc.abstractmethod
    def values(self, ranks: _Numbers, hits: _Numbers, found: _Numbers) -> _Numbers:
        """Returns what each relevant document adds to the value of its query.

        Args:
          ranks: rank of the document, from 1.
          hits: number of relevant documents up to this rank.
          found: number of relevant documents of the query.
        """


@register_metric("query_map")
class QueryMap(_OfQueries):
    """Mean over queries of the average precision at their relevant documents."""

    def values(self, ranks: _Numbers, hits: _Numbers, found: _Numbers) -> _Numbers:
        """Returns the precisions, divided by their number."""
        return hits / ranks / found


@register_metric("query_mrr")
class QueryMrr(_OfQueries):
    """Mean over queries of the reciprocal rank of the first relevant document."""

    def values(self, ranks: _Numbers, hits: _Numbers, found: _Numbers) -> _Numbers:
        """Returns the reciprocal ranks of the first ones."""
        return np.where(hits == 1, 1 / ranks, 0.0)
