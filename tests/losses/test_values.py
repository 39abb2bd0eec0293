"""Each loss, against torch's own or the formula written out."""

from __future__ import annotations

import math

import pytest
import torch
from loss_targets import PAIRS, TARGETS, batch_of, modality_of
from torch.nn import functional as F

from t2t_torch.features import Choice, ClassLabel, MultiLabel, Real, SoftLabel, Span, Tags, Text


def loss_of(name, kind, **hparams):
    """(sum, weight) of a kind's batch, its logits and its targets."""
    logits, targets = batch_of(kind)
    found = modality_of(kind, loss=name, **hparams).eval().loss(logits, targets)
    return found, logits, targets


@pytest.mark.parametrize("kind", [Text, Tags, ClassLabel, Choice])
def test_cross_entropy_is_torchs(kind):
    found, logits, targets = loss_of("cross_entropy", kind)
    ignored = targets <= 0 if kind is Text else targets < 0
    targets = targets.masked_fill(ignored, -100)
    expected = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")
    torch.testing.assert_close(found.sum, expected)
    assert found.weight == (~ignored).sum()


def test_cross_entropy_of_a_span_is_the_mean_of_both_ends():
    found, logits, targets = loss_of("cross_entropy", Span)
    first = F.cross_entropy(logits[..., 0], targets[:, 0] + 1, reduction="sum")
    last = F.cross_entropy(logits[..., 1], targets[:, 1] + 1, reduction="sum")
    torch.testing.assert_close(found.sum, (first + last) / 2)


def test_cross_entropy_and_kl_of_probabilities_are_torchs():
    found, logits, targets = loss_of("cross_entropy", SoftLabel)
    torch.testing.assert_close(found.sum, F.cross_entropy(logits, targets, reduction="sum"))
    found, _, _ = loss_of("kl", SoftLabel)
    expected = F.kl_div(logits.log_softmax(-1), targets, reduction="sum")
    torch.testing.assert_close(found.sum, expected)


def test_kl_is_nothing_where_the_probabilities_are_met():
    modality = modality_of(SoftLabel, loss="kl")
    targets = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]])
    assert modality.loss(targets.log(), targets).sum.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_is_the_formula(gamma):
    found, logits, targets = loss_of("focal", ClassLabel, focal_gamma=gamma)
    expected = 0.0
    for row, target in zip(logits.double().softmax(-1).tolist(), targets.tolist(), strict=True):
        if target >= 0:
            expected -= (1 - row[target]) ** gamma * math.log(row[target])
    assert found.sum.item() == pytest.approx(expected, rel=1e-5)


def test_focal_of_several_labels_weighs_those_that_are_there_with_alpha():
    found, logits, targets = loss_of("focal", MultiLabel, focal_alpha=0.3)
    expected = 0.0
    probabilities = logits.double().sigmoid()
    for p, y in zip(probabilities.flatten().tolist(), targets.flatten().tolist(), strict=True):
        right, alpha = (p, 0.3) if y else (1 - p, 0.7)
        expected -= alpha * (1 - right) ** 2 * math.log(right) / 3
    assert found.sum.item() == pytest.approx(expected, rel=1e-5)
    assert found.weight == len(targets)


def test_what_is_certain_has_a_finite_slope_in_focal():
    modality = modality_of(ClassLabel, loss="focal", focal_gamma=0.5)
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    modality.loss(logits, torch.tensor([0])).sum.backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_generalized_cross_entropy_is_the_formula_and_its_gradient(q):
    found, logits, targets = loss_of("generalized_cross_entropy", ClassLabel, gce_q=q)
    logits = logits.double().requires_grad_(True)
    known = targets >= 0
    p = logits.softmax(-1)[known].gather(-1, targets[known][:, None])[:, 0]
    torch.testing.assert_close(found.sum.double(), ((1 - p**q) / q).sum(), rtol=1e-5, atol=1e-6)
    modality = modality_of(ClassLabel, loss="generalized_cross_entropy", gce_q=q)
    own, entropy = logits.detach().float().requires_grad_(True), logits.log_softmax(-1)
    (gradient,) = torch.autograd.grad(modality.loss(own, targets).sum, own)
    # Equation 7 of the paper: the gradient of the cross entropy of each label, times p^q.
    entropy = -entropy[known].gather(-1, targets[known][:, None])[:, 0]
    (expected,) = torch.autograd.grad((entropy * p.detach() ** q).sum(), logits)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("q", [0.0, 1e-6])
def test_generalized_cross_entropy_ends_at_the_cross_entropy(q):
    found, _, _ = loss_of("generalized_cross_entropy", ClassLabel, gce_q=q)
    torch.testing.assert_close(found, loss_of("cross_entropy", ClassLabel)[0], rtol=1e-4, atol=1e-4)


def test_binary_cross_entropy_is_torchs():
    found, logits, targets = loss_of("binary_cross_entropy", MultiLabel)
    expected = F.binary_cross_entropy_with_logits(logits, targets.float(), reduction="none")
    torch.testing.assert_close(found.sum, expected.mean(-1).sum())


def test_binary_cross_entropy_of_a_class_is_one_against_all_others():
    found, logits, targets = loss_of("binary_cross_entropy", ClassLabel)
    known = targets >= 0
    each = F.binary_cross_entropy_with_logits(
        logits[known], F.one_hot(targets[known], 3).float(), reduction="none"
    )
    torch.testing.assert_close(found.sum, each.mean(-1).sum())
    assert found.weight == known.sum()


@pytest.mark.parametrize("margin", [1.0, 0.4])
def test_hinge_is_torchs(margin):
    found, logits, targets = loss_of("hinge", ClassLabel, loss_margin=margin)
    known = targets >= 0
    expected = F.multi_margin_loss(logits[known], targets[known], margin=margin, reduction="sum")
    torch.testing.assert_close(found.sum, expected)


def test_margin_ranking_is_the_mean_of_torchs_over_the_other_candidates():
    found, logits, targets = loss_of("margin_ranking", Choice, loss_margin=0.7)
    expected = torch.tensor(0.0)
    for row, right in zip(logits, targets.tolist(), strict=True):
        for other in {0, 1, 2} - {right}:
            pair = row[right][None], row[other][None], torch.ones(1)
            expected += F.margin_ranking_loss(*pair, margin=0.7) / 2
    torch.testing.assert_close(found.sum, expected)


@pytest.mark.parametrize(("name", "peer"), [("mse", F.mse_loss), ("mae", F.l1_loss)])
def test_errors_of_numbers_are_torchs(name, peer):
    found, logits, targets = loss_of(name, Real)
    torch.testing.assert_close(found.sum / found.weight, peer(logits, targets))
    assert found.weight == len(targets)


def test_cosine_is_torchs():
    found, logits, targets = loss_of("cosine", Real)
    expected = F.cosine_embedding_loss(logits, targets, torch.ones(len(targets)), reduction="sum")
    torch.testing.assert_close(found.sum, expected)


def test_label_smoothing_is_for_training():
    logits, targets = batch_of(ClassLabel)
    modality = modality_of(ClassLabel)
    modality.target_loss.label_smoothing = 0.1
    smoothed, plain = modality.train().loss(logits, targets), modality.eval().loss(logits, targets)
    assert not torch.isclose(smoothed.sum, plain.sum)


def test_every_loss_has_a_target():
    assert {kind for _, kind in PAIRS} == set(TARGETS)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_losses_of_halves_of_a_batch_add_up(name, kind):
    modality = modality_of(kind, loss=name)
    logits, targets = batch_of(kind)
    weights = torch.tensor([0.5, 2.0, 0.0, 1.0])[: len(targets)]
    whole = modality.loss(logits, targets, weights)
    halves = [modality.loss(logits[i::2], targets[i::2], weights[i::2]) for i in (0, 1)]
    torch.testing.assert_close(sum(half.sum for half in halves), whole.sum)
    torch.testing.assert_close(sum(half.weight for half in halves), whole.weight)


@pytest.mark.parametrize(("name", "kind"), [p for p in PAIRS if p[1] in (Text, Tags, Span)])
def test_padding_changes_no_loss(name, kind):
    modality = modality_of(kind, loss=name)
    logits, targets = batch_of(kind)
    more = torch.full((len(logits), 3, logits.size(-1)), -torch.inf if kind is Span else 7.0)
    padded = targets
    if kind is not Span:
        padding = TARGETS[kind].padding
        padded = torch.cat([targets, torch.full((len(targets), 3), padding)], 1)
    before = modality.loss(logits, targets)
    after = modality.loss(torch.cat([logits, more], 1), padded)
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_gradients_are_those_of_small_differences(name, kind):
    modality = modality_of(kind, loss=name).train()
    logits, targets = batch_of(kind)
    logits.requires_grad_(True)
    (gradient,) = torch.autograd.grad(modality.loss(logits, targets).sum, logits)
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    step = 1e-3 * direction

    def at(moved):
        return modality.loss(moved, targets).sum.double()

    with torch.no_grad():
        slope = (at(logits + step) - at(logits - step)) / 2e-3
    expected = (gradient * direction).sum().double()
    torch.testing.assert_close(slope, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_what_does_not_count_has_no_gradient(name, kind):
    modality = modality_of(kind, loss=name).train()
    logits, targets = batch_of(kind)
    logits.requires_grad_(True)
    weights = torch.ones(len(targets))
    weights[0] = 0.0
    (gradient,) = torch.autograd.grad(modality.loss(logits, targets, weights).sum, logits)
    assert gradient.isfinite().all()
    assert not gradient[0].any()
    if kind in (Tags, ClassLabel):
        assert not gradient[targets < 0].any()
    assert gradient.any()
