"""Adam's epsilon is tensor2tensor's, and a function of what the loop counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.hparam import HParams

EPSILON = 0.1  # large, so that it shows
HPARAMS = HParams().parse(f"optimizer_adam_epsilon={EPSILON},weight_decay=0.0")
BETA1, BETA2 = HPARAMS.optimizer_adam_beta1, HPARAMS.optimizer_adam_beta2


def by_hand(gradients):
    """Kingma and Ba 2015, the form at the end of section 2, from 0 at a rate of 1."""
    weight = first = second = 0.0
    for t, gradient in enumerate(gradients, 1):
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        rate = math.sqrt(1 - BETA2**t) / (1 - BETA1**t)
        weight -= rate * first / (math.sqrt(second) + EPSILON)
    return weight


def run(name, gradients, *, first_update=None, **group):
    weight = nn.Parameter(torch.zeros(1))
    optimizer = registry.optimizer(name)([{"params": [weight], **group}], HPARAMS)
    for number, gradient in enumerate(gradients):
        weight.grad = torch.tensor([gradient])
        optimizer.param_groups[0]["lr"] = 1.0
        if first_update is not None:
            optimizer.param_groups[0]["updates"] = first_update + number
        optimizer.step()
    return weight.item()


@pytest.mark.parametrize("name", ["adam", "true_adam", "multistep_adam", "adam_w"])
def test_epsilon_is_added_to_the_root_of_the_uncorrected_moment(name):
    gradients = [0.5, -0.2, 0.3]
    assert run(name, gradients, first_update=0) == pytest.approx(by_hand(gradients), rel=1e-5)


def test_without_a_loop_that_counts_the_moments_are_asked():
    gradients = [0.5, -0.2, 0.3]
    assert run("adam", gradients) == pytest.approx(by_hand(gradients), rel=1e-5)


def test_what_is_unfrozen_late_begins_as_what_begins_at_once():
    gradients = [0.5, -0.2, 0.3]
    late = run("adam", gradients, first_update=1000, unfreeze_step=1000)
    assert late == pytest.approx(by_hand(gradients), rel=1e-5)


def test_the_loops_count_decides_and_not_that_of_the_moments():
    gradients = [0.5]
    # At update 1000 nearly nothing is corrected, so that epsilon counts once, not 18 times.
    expected = -math.sqrt(1 - BETA2) / (1 - BETA1) * (1 - BETA1) * 0.5
    expected /= math.sqrt(1 - BETA2) * (0.5 + EPSILON / math.sqrt(1 - BETA2**1001))
    assert run("adam", gradients, first_update=1000) == pytest.approx(expected, rel=1e-5)
