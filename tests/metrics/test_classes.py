"""Metrics of classes by class, computed by hand."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch.nn import functional as F

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, MultiLabel, Tags
from t2t_torch.metrics.classes import WITHOUT_SYNC, LibraryMetric
from t2t_torch.metrics.metric import Mean, metric_of
from t2t_torch.text.encoder import ClassLabelEncoder

LABELS = ClassLabelEncoder(["a", "b", "c", "never"])
CLASSES = ClassLabel(LABELS, allow_unknown=True)
# guessed:            a  a  a  b  b  c  and one whose class training did not know
GUESSES = torch.tensor([0, 0, 0, 1, 1, 2, 2])
TARGETS = torch.tensor([0, 0, 1, 1, 2, 2, -1])


def value(name, feature, guesses=GUESSES, targets=TARGETS):
    metric = metric_of(name, feature)
    return metric.result(metric.update(F.one_hot(guesses, 4).float(), targets))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("precision_macro", (2 / 3 + 1 / 2 + 1) / 3),
        ("recall_macro", (1 + 1 / 2 + 1 / 2) / 3),
        ("f1_macro", (4 / 5 + 1 / 2 + 2 / 3) / 3),
        ("cohen_kappa", (4 / 6 - 12 / 36) / (1 - 12 / 36)),
        ("matthews_correlation", (4 * 6 - 12) / math.sqrt((36 - 14) * (36 - 12))),
    ],
)
def test_classes_that_do_not_occur_and_unknown_ones_do_not_count(name, expected):
    assert value(name, CLASSES) == pytest.approx(expected)
    rows, targets = GUESSES[:, None], TARGETS[:, None]
    filled = F.pad(targets, (0, 2), value=-100)
    assert value(name, Tags(LABELS), F.pad(rows, (0, 2)), filled) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["matthews_correlation", "cohen_kappa"])
@pytest.mark.parametrize("guesses", [torch.zeros(7).long(), GUESSES])
def test_where_one_side_never_varies_there_is_no_agreement_beyond_chance(name, guesses):
    assert value(name, CLASSES, guesses, torch.zeros(7).long()) == 0.0


def test_each_label_has_a_number_of_its_own():
    metric = metric_of("f1_per_label", CLASSES)
    sums = metric.update(F.one_hot(GUESSES, 4).float(), TARGETS)
    found = metric.results("f1_per_label", sums)
    expected = {"a": 4 / 5, "b": 1 / 2, "c": 2 / 3, "never": 0.0}
    assert found == {f"f1_per_label/{k}": pytest.approx(v) for k, v in expected.items()}
    assert metric.result(sums) == value("f1_macro", CLASSES)


def test_labels_of_which_there_may_be_any_number_are_counted_one_by_one():
    feature = MultiLabel(LABELS)
    logits = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, -1.0, -1.0]])
    targets = torch.tensor([[1, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.uint8)
    values = {}
    for name in ("precision_macro", "recall_macro", "f1_macro", "set_precision", "set_recall"):
        metric = metric_of(name, feature)
        values[name] = metric.result(metric.update(logits, targets))
    assert values == {
        "precision_macro": pytest.approx((1 / 2 + 0 + 0) / 3),
        "recall_macro": pytest.approx((1 + 0 + 0) / 3),
        "f1_macro": pytest.approx((2 / 3 + 0 + 0) / 3),
        "set_precision": pytest.approx(1 / 3),
        "set_recall": pytest.approx(1 / 2),
    }


class _Scores(LibraryMetric):
    """Keeps all scores: what it is cannot be added up."""

    of = (ClassLabel,)
    how = WITHOUT_SYNC

    def make(self, feature):
        from torchmetrics.classification import MulticlassAUROC

        return MulticlassAUROC(feature.vocab_size, **self.how)

    def rows(self, logits, targets):
        return logits, targets


class _Binned(_Scores):
    def make(self, feature):
        from torchmetrics.classification import MulticlassAUROC

        return MulticlassAUROC(feature.vocab_size, thresholds=11, **self.how)


class _Synced(_Binned):
    how: ClassVar[dict] = {}


def test_a_library_metric_must_be_sums_and_leave_processes_to_us():
    with pytest.raises(UsageError, match="preds, target of it is no sum"):
        _Scores(CLASSES)
    with pytest.raises(UsageError, match="second time"):
        _Synced(CLASSES)


def test_a_library_metric_of_ones_own_adds_up():
    metric = _Binned(CLASSES)
    logits, targets = torch.randn(40, 4), torch.arange(40) % 4
    parts = metric.update(logits[:7], targets[:7]) + metric.update(logits[7:], targets[7:])
    library = metric.make(CLASSES)
    library.update(logits, targets)
    assert metric.result(parts) == pytest.approx(library.compute().item())


@pytest.mark.parametrize(
    ("name", "expected"), [("precision_micro", 4 / 6), ("recall_micro", 4 / 6), ("f1_micro", 4 / 6)]
)
def test_of_one_class_each_the_micro_mean_is_the_share_that_is_right(name, expected):
    assert value(name, CLASSES) == pytest.approx(expected)


def test_the_micro_mean_of_labels_is_over_all_of_them():
    feature = MultiLabel(LABELS)
    logits = torch.tensor([[1.0, 1, -1, -1], [1, -1, -1, -1]])
    targets = torch.tensor([[1, 0, 1, 0], [1, 0, 1, 0]])
    found = {}
    for name in ("precision_micro", "recall_micro", "f1_micro"):
        metric = metric_of(name, feature)
        found[name] = metric.result(metric.update(logits, targets))
    assert found == {
        "precision_micro": pytest.approx(2 / 3),
        "recall_micro": pytest.approx(2 / 4),
        "f1_micro": pytest.approx(4 / 7),
    }


def test_the_support_of_a_label_is_how_often_it_is_right():
    metric = metric_of("support_per_label", CLASSES)
    sums = metric.update(F.one_hot(GUESSES, 4).float(), TARGETS)
    found = metric.results("support", sums)
    assert found == {"support/a": 2, "support/b": 2, "support/c": 2, "support/never": 0}
    assert metric.result(sums) == 6


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (torch.ones(3), r"torch.Size\(\[3\]\)"),
        ((torch.ones(3), torch.ones(3)), r"torch.Size\(\[3\]\), torch.Size\(\[3\]\)"),
        ((1.0, 2), "float, int"),
    ],
)
def test_a_function_that_returns_no_two_sums_is_named(result, got):
    def share_of_two(logits, targets, weights):
        return result

    metric = Mean(CLASSES, share_of_two)
    with pytest.raises(UsageError, match=rf"^share_of_two returns two .*; got {got}\."):
        metric.update(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
