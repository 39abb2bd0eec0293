"""Areas under curves, against all scores; confidence, against torchmetrics."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import (
    binary_average_precision,
    binary_recall_at_fixed_precision,
    multiclass_calibration_error,
)

from t2t_torch.features import ClassLabel, MultiLabel
from t2t_torch.metrics.metric import metric_of
from t2t_torch.text.encoder import ClassLabelEncoder

TWO = ClassLabel(ClassLabelEncoder(["no", "yes"]))
THREE = ClassLabel(ClassLabelEncoder(["a", "b", "c"]), allow_unknown=True)


def value(name, feature, logits, targets):
    metric = metric_of(name, feature)
    return metric.result(metric.update(logits, targets))


def pairwise(scores, there):
    """How often an example with the label is above one without, counted pair by pair."""
    positive, negative = (
        [score for score, has in zip(scores, there, strict=True) if bool(has) is kind]
        for kind in (True, False)
    )
    pairs = list(itertools.product(positive, negative))
    return sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs)


def of_two(seed, rows=400, spread=3.0):
    generator = torch.Generator().manual_seed(seed)
    there = torch.randint(2, (rows,), generator=generator)
    scores = spread * torch.randn(rows, generator=generator) + there
    return torch.stack([torch.zeros(rows), scores], 1), there


@pytest.mark.parametrize("spread", [0.1, 3.0, 15.0])
def test_the_area_is_that_of_all_pairs(spread):
    logits, there = of_two(0, spread=spread)
    expected = pairwise(logits[:, 1].tolist(), there.tolist())
    assert value("roc_auc", TWO, logits, there) == pytest.approx(expected, abs=1e-3)


def test_equal_scores_are_half_right():
    logits = torch.zeros(4, 2)
    assert value("roc_auc", TWO, logits, torch.tensor([0, 1, 1, 1])) == 0.5


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=20))
@settings(deadline=None)
def test_scores_far_enough_apart_are_counted_exactly(examples):
    scores, there = zip(*examples, strict=True)
    logits = torch.tensor([[0.0, score] for score in scores])
    found = value("roc_auc", TWO, logits, torch.tensor(there).long())
    if len(set(there)) < 2:
        assert found == 0.5
    else:
        assert found == pytest.approx(pairwise(scores, there))


def test_each_of_several_classes_is_against_the_others_and_an_unknown_one_does_not_count():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(60, 3, generator=generator)
    targets = torch.randint(-1, 2, (60,), generator=generator)  # the third never comes
    known = targets >= 0
    areas = []
    for label in (0, 1):
        odds = logits[known].softmax(-1)[:, label].tolist()
        areas.append(pairwise(odds, (targets[known] == label).tolist()))
    assert value("roc_auc", THREE, logits, targets) == pytest.approx(sum(areas) / 2, abs=1e-3)


def test_scores_that_are_no_numbers_are_below_all_others():
    nan = float("nan")
    logits = torch.tensor([[0.0, nan], [0.0, -9.0], [0.0, float("inf")]])
    assert value("roc_auc", TWO, logits, torch.tensor([0, 1, 1])) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_precision_over_recall_is_that_of_all_scores(seed):
    logits, there = of_two(seed)
    expected = binary_average_precision(logits[:, 1].sigmoid(), there).item()
    assert value("average_precision", TWO, logits, there) == pytest.approx(expected, abs=2e-3)

    metric = metric_of("recall_at_precision", TWO)
    found = metric.results("r", metric.update(logits, there))
    assert list(found) == [f"r/{p}" for p in (0.2, 0.4, 0.6, 0.8, 0.9)]
    for name, recall in found.items():
        least = float(name.partition("/")[2])
        best, _ = binary_recall_at_fixed_precision(logits[:, 1].sigmoid(), there, least)
        assert recall == pytest.approx(best.item(), abs=1e-2), name


def test_labels_are_measured_one_by_one_and_averaged():
    feature = MultiLabel(ClassLabelEncoder(["x", "y", "never"]))
    logits = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 3.0, 0.0]])
    targets = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 1, 0]], dtype=torch.uint8)
    assert value("roc_auc", feature, logits, targets) == 1.0
    logits[2, 1] = 1.5
    assert value("roc_auc", feature, logits, targets) == pytest.approx((1 + 0.5) / 2)
    assert value("average_precision", feature, logits, targets) == pytest.approx((1 + 0.5) / 2)


@pytest.mark.parametrize(
    ("name", "norm"), [("expected_calibration_error", "l1"), ("maximum_calibration_error", "max")]
)
def test_calibration_is_that_of_torchmetrics(name, norm):
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(200, 3, generator=generator)
    targets = torch.randint(3, (200,), generator=generator)
    expected = multiclass_calibration_error(logits, targets, 3, n_bins=15, norm=norm).item()
    assert value(name, THREE, logits, targets) == pytest.approx(expected, abs=1e-6)


def test_a_model_that_is_always_sure_is_off_by_how_often_it_is_wrong():
    logits = torch.tensor([[50.0, 0.0, 0.0]] * 4)
    targets = torch.tensor([0, 1, -1, 0])
    assert value("expected_calibration_error", THREE, logits, targets) == pytest.approx(0.5)
