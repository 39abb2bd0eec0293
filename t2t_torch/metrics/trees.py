"""Teacher-forced tree metrics: each transition is predicted after the correct ones.

Predicted transitions are repaired to form a tree, so these metrics show training progress.  For
actual parsing quality decode: `t2t-decoder --data_dir` computes the same metrics on decoded trees
(`metrics/text_scores.py`).  Only `accuracy_per_sequence` is the same for both: all predictions are
correct exactly if a greedy search finds the correct tree.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from t2t_torch.features import TreeFeature
from t2t_torch.metrics.metric import Metric
from t2t_torch.registry import register_metric
from t2t_torch.text.tree import NO_TREES, SHIFT, TreeCounts, builds_tree, compare, repair


class _TreeMetric(Metric):
    """Base class: compares predicted and correct trees; see `TreeCounts`."""

    of = (TreeFeature,)
    size = len(NO_TREES)

    def __init__(self, feature: TreeFeature) -> None:
        super().__init__(feature)
        self._tree = feature

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the counts of a batch.  [B, T, V], [B, T]."""
        sums = NO_TREES
        tags = self._tree.is_round and not self._tree.tags
        for predictions, ids in zip(logits.argmax(-1).tolist(), targets.tolist(), strict=True):
            right = repair(self._tree.transitions(ids))
            ours = self._tree.transitions(predictions[: sum(i > 0 for i in ids)])
            words = right.count(SHIFT)
            counts = compare(repair(ours, words), right, tags=tags)
            malformed = int(not builds_tree(ours, words))
            sums = sums.plus(counts._replace(malformed=malformed))
        return torch.tensor(sums, dtype=torch.float64)

    def result(self, sums: Tensor) -> float:
        """Returns the metric of the counts."""
        return self.of_counts(TreeCounts(*(int(count) for count in sums.tolist())))

    of_counts: ClassVar[staticmethod[[TreeCounts], float]]


@register_metric("bracket_precision")
class BracketPrecision(_TreeMetric):
    """Fraction of the predicted labelled brackets that are correct."""

    of_counts = staticmethod(lambda counts: counts.precision)


@register_metric("bracket_recall")
class BracketRecall(_TreeMetric):
    """Fraction of the correct labelled brackets that are predicted."""

    of_counts = staticmethod(lambda counts: counts.recall)


@register_metric("bracket_f1")
class BracketF1(_TreeMetric):
    """F1 of the labelled brackets of all trees."""

    of_counts = staticmethod(lambda counts: counts.f1)


@register_metric("tree_f1")
class TreeF1(_TreeMetric):
    """F1 of brackets that only count as correct with identical content.  Gupta et al. 2018."""

    of_counts = staticmethod(lambda counts: counts.tree_f1)


@register_metric("tree_frame_accuracy")
class TreeFrameAccuracy(_TreeMetric):
    """Fraction of trees with the correct outermost label and correct brackets right inside it."""

    of_counts = staticmethod(lambda counts: counts.frames / max(counts.trees, 1))


@register_metric("malformed_trees")
class MalformedTrees(_TreeMetric):
    """Fraction of predictions that, without repair, do not form a tree over all words."""

    lower_is_better = True
    of_counts = staticmethod(lambda counts: counts.malformed / max(counts.trees, 1))
