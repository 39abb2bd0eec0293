"""Metrics of choices, computed by hand."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.features import Choice
from t2t_torch.metrics.metric import metric_of
from t2t_torch.problem_types.classification import PairRankingProblem

CHOICE = Choice(("positive", "negative"))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([2.0, 1.0], 1.0), ([1.0, 2.0], 0.0), ([1.0, 1.0], 0.5), ([1.0, 1.0, 1.0], 1 / 3)],
)
def test_equal_scores_are_a_draw(scores, expected):
    metric = metric_of("pairwise_accuracy", CHOICE)
    logits, targets = torch.tensor([scores] * 4), torch.zeros(4, dtype=torch.int64)
    assert metric.result(metric.update(logits, targets)) == pytest.approx(expected)


def test_a_model_that_does_not_tell_candidates_apart_ranks_half_of_them_right():
    (name,) = {"pairwise_accuracy", "accuracy"} & set(PairRankingProblem.metrics)
    metric = metric_of(name, CHOICE)
    sums = metric.update(torch.zeros(6, 2), torch.zeros(6, dtype=torch.int64))
    assert metric.result(sums) == 0.5
