"""Metrics of spans, for tagging and extractive question answering, and of trees."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from t2t_torch.features import IGNORED, Span, Tags, TreeFeature
from t2t_torch.metrics.metric import Metric, f1, precision, recall, sums_of
from t2t_torch.modalities.label import best_spans
from t2t_torch.registry import register_metric
from t2t_torch.text.tags import UNKNOWN_TAG, scheme_of
from t2t_torch.text.tree import NO_TREES, SHIFT, TreeCounts, builds_tree, compare, repair


class _Spans(Metric):
    """Counts tagged spans by kind; a span is correct if its words and kind match.

    Same as conlleval (Tjong Kim Sang and Buchholz 2000), and seqeval in its default mode.
    """

    of = (Tags,)

    def __init__(self, feature: Tags) -> None:
        super().__init__(feature)
        self._labels = feature.encoder.labels
        self._spans = scheme_of(self._labels).spans
        kinds = [
            span.kind for label in (*self._labels, UNKNOWN_TAG) for span in self._spans([label])
        ]
        self._kinds = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
        self.size = 3 * len(self._kinds)

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the correct, predicted and reference spans of each kind.  [B, W, C], [B, W]."""
        counts = [[0] * len(self._kinds) for _ in range(3)]
        for guessed, row in zip(logits.argmax(-1).tolist(), targets.tolist(), strict=True):
            places = [i for i, tag in enumerate(row) if tag != IGNORED]
            ours = set(self._spans([self._labels[guessed[i]] for i in places]))
            known = (self._labels[row[i]] if row[i] >= 0 else UNKNOWN_TAG for i in places)
            theirs = set(self._spans(list(known)))
            for line, spans in zip(counts, (ours & theirs, ours, theirs), strict=True):
                for span in spans:
                    line[self._kinds[span.kind]] += 1
        return torch.tensor(counts, dtype=torch.float64).flatten()

    score: ClassVar[staticmethod[[float, float, float], float]]

    def result(self, sums: Tensor) -> float:
        """Returns the score of the correct, predicted and reference spans of all kinds."""
        return self.score(*sums.view(3, -1).sum(1).tolist())


@register_metric("span_precision")
class SpanPrecision(_Spans):
    """Fraction of the predicted spans that are correct."""

    score = staticmethod(precision)


@register_metric("span_recall")
class SpanRecall(_Spans):
    """Fraction of the reference spans that are predicted."""

    score = staticmethod(recall)


@register_metric("span_f1")
class SpanF1(_Spans):
    """F1 of the spans of all kinds."""

    score = staticmethod(f1)


class _PerKind(_Spans):
    """Base class: one value per span kind."""

    def result(self, sums: Tensor) -> float:
        """Returns the mean over kinds that occur or are predicted; 0 if there are none."""
        values = [self.score(*row) for row in sums.view(3, -1).T.tolist() if any(row)]
        return sum(values) / len(values) if values else 0.0

    def results(self, name: str, sums: Tensor) -> dict[str, float]:
        """Returns `<name>/<kind>` for each kind among the labels."""
        rows = zip(self._kinds, sums.view(3, -1).T.tolist(), strict=True)
        unknown = {span.kind for span in self._spans([UNKNOWN_TAG])}
        return {f"{name}/{kind}": self.score(*row) for kind, row in rows if kind not in unknown}


@register_metric("span_f1_per_label")
class SpanF1PerLabel(_PerKind):
    """F1 per span kind; 0 for a kind that neither occurs nor is predicted."""

    score = staticmethod(f1)


@register_metric("span_precision_per_label")
class SpanPrecisionPerLabel(_PerKind):
    """Precision per span kind."""

    score = staticmethod(precision)


@register_metric("span_recall_per_label")
class SpanRecallPerLabel(_PerKind):
    """Recall per span kind."""

    score = staticmethod(recall)


@register_metric("span_support_per_label")
class SpanSupportPerLabel(_PerKind):
    """Number of reference spans per kind."""

    score = staticmethod(lambda right, predicted, expected: expected)


@register_metric("answer_exact_match")
class AnswerExactMatch(Metric):
    """Fraction of examples whose answer span matches exactly, or is correctly absent.

    An example is one window of a text: a question about a long text counts once per window, most of
    which contain no answer.  Of several answers only the first is the reference.
    """

    of = (Span,)

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the correct answers and the examples.  [B, 1 + W, 2], [B, 2]."""
        right = (best_spans(logits) == targets).all(-1).sum()
        return sums_of(right, targets.new_tensor(len(targets)))


@register_metric("answer_f1")
class AnswerF1(AnswerExactMatch):
    """Mean word F1 of predicted and reference answer.

    Examples are windows, as in `AnswerExactMatch`.  Words are compared by position; SQuAD's own F1
    compares their spelling, without articles.
    """

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the sum of the examples' F1, and the examples.  [B, 1 + W, 2], [B, 2]."""
        ours = best_spans(logits)
        common = torch.minimum(ours[:, 1], targets[:, 1]) - torch.maximum(ours[:, 0], targets[:, 0])
        common = (common + 1).clamp(min=0)
        lengths = (ours[:, 1] - ours[:, 0] + 1) + (targets[:, 1] - targets[:, 0] + 1)
        f1 = 2 * common.double() / lengths
        no_answer = (ours[:, 0] < 0) | (targets[:, 0] < 0)
        f1 = torch.where(no_answer, (ours == targets).all(-1).to(f1.dtype), f1)
        return sums_of(f1.sum(), targets.new_tensor(len(targets)))


class _TreeMetric(Metric):
    """Base class: compares predicted and correct trees, teacher-forced; see `TreeCounts`.

    Each transition is predicted after the correct ones, and predicted transitions are repaired to
    form a tree, so these metrics show training progress.  For actual parsing quality decode:
    `t2t-decoder --data_dir` computes the same metrics on decoded trees (`metrics/text_scores.py`).
    Only `accuracy_per_sequence` is the same for both: all predictions are correct exactly if a
    greedy search finds the correct tree.
    """

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
