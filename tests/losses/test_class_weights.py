"""Weights of classes in a loss are torch's."""

from __future__ import annotations

import pytest
import torch
from loss_targets import batch_of, modality_of
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, MultiLabel, SoftLabel, Tags

WEIGHTS = torch.tensor([0.5, 2.0, 1.25])


def weighed(kind, loss):
    modality = modality_of(kind, loss=loss).train()
    modality.target_loss.class_weights = WEIGHTS
    logits, targets = batch_of(kind)
    return modality.loss(logits, targets), logits, targets


@pytest.mark.parametrize("kind", [ClassLabel, Tags])
def test_the_mean_cross_entropy_is_over_the_weights(kind):
    found, logits, targets = weighed(kind, "cross_entropy")
    targets = targets.masked_fill(targets < 0, -100).flatten()
    expected = F.cross_entropy(logits.flatten(0, -2), targets, weight=WEIGHTS)
    torch.testing.assert_close(found.sum / found.weight, expected)


def test_of_probabilities_each_term_has_its_classs_weight():
    found, logits, targets = weighed(SoftLabel, "cross_entropy")
    expected = F.cross_entropy(logits, targets, weight=WEIGHTS)
    torch.testing.assert_close(found.sum / found.weight, expected)
    found, logits, targets = weighed(SoftLabel, "kl")
    terms = F.kl_div(logits.log_softmax(-1), targets, reduction="none") * WEIGHTS
    torch.testing.assert_close(found.sum, terms.sum())


def test_of_labels_by_themselves_it_is_the_weight_of_those_that_are_there():
    found, logits, targets = weighed(MultiLabel, "binary_cross_entropy")
    expected = F.binary_cross_entropy_with_logits(logits, targets.float(), pos_weight=WEIGHTS)
    torch.testing.assert_close(found.sum / found.weight, expected)


@pytest.mark.parametrize("loss", ["focal", "hinge"])
def test_other_losses_of_a_class_are_weighed_by_it(loss):
    found, logits, targets = weighed(ClassLabel, loss)
    plain = modality_of(ClassLabel, loss=loss)
    expected = torch.zeros(2)
    for row, target in zip(logits, targets, strict=True):
        if target >= 0:
            one = plain.loss(row[None], target[None])
            expected += WEIGHTS[target] * torch.stack(list(one))
    torch.testing.assert_close(torch.stack(list(found)), expected)


def test_focal_of_several_labels_weighs_those_that_are_there():
    found, logits, targets = weighed(MultiLabel, "focal")
    loss = modality_of(MultiLabel, loss="focal").target_loss
    values = loss.values(logits, targets) * torch.where(targets.bool(), WEIGHTS, 1.0)
    torch.testing.assert_close(found.sum, values.mean(-1).sum())
    assert found.weight == len(targets)
