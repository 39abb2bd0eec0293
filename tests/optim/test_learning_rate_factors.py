"""The factors that tensor2tensor lacks, by hand; its own are in tests/golden."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.optim.settings import learning_rate


def rates(schedule, steps, hparams="", train_steps=100):
    made = HParams().parse(f"learning_rate_schedule={schedule}").parse(hparams)
    rate = learning_rate(made, train_steps)
    return [rate(step) for step in steps]


def test_step_decay_drops_by_the_rate_after_every_decay_steps():
    hparams = (
        "learning_rate_warmup_steps=10,learning_rate_decay_steps=30,learning_rate_decay_rate=0.1"
    )
    found = rates("step_decay", [0, 10, 39, 40, 69, 70], hparams)
    assert found == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01])


def test_step_decay_without_a_rate_is_refused():
    with pytest.raises(HParamsError, match=r"learning_rate_decay_rate, which is 1"):
        rates("step_decay", [0])


def test_cosine_annealing_is_torchs_up_to_its_end_and_stays_there():
    hparams = (
        "learning_rate_warmup_steps=0,learning_rate_decay_steps=40,learning_rate_end_factor=0.2"
    )
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * step / 40)) / 2 for step in (0, 10, 20, 40)]
    assert rates("cosine_annealing", [0, 10, 20, 40, 90], hparams) == pytest.approx(
        [*expected, 0.2]
    )


def test_polynomial_decay_ends_at_train_steps():
    hparams = (
        "learning_rate_warmup_steps=20,learning_rate_decay_power=2,learning_rate_end_factor=0.1"
    )
    found = rates("polynomial_decay", [0, 20, 60, 100, 200], hparams)
    assert found == pytest.approx([1, 1, 0.1 + 0.9 * 0.25, 0.1, 0.1])


def test_a_linear_warm_up_and_decay_is_that_of_transformers():
    """`get_linear_schedule_with_warmup` of Hugging Face."""
    transformers = pytest.importorskip("transformers")
    parameter = torch.nn.Parameter(torch.zeros(1))
    theirs = transformers.get_linear_schedule_with_warmup(torch.optim.SGD([parameter]), 10, 100)
    factor = theirs.lr_lambdas[0]
    steps = [*range(0, 100, 7), 10, 99, 100, 120]
    found = rates("linear_warmup*polynomial_decay", steps, "learning_rate_warmup_steps=10")
    assert found == pytest.approx([factor(step) for step in steps], rel=1e-15, abs=1e-16)
    assert found[-2:] == [0.0, 0.0]


def test_polynomial_decay_needs_steps_after_the_warm_up():
    told = (
        r"polynomial_decay .*last step of the run, 50.*Set --hparams=learning_rate_warmup_steps=5,"
    )
    with pytest.raises(HParamsError, match=told):
        rates("polynomial_decay", [0], "learning_rate_warmup_steps=50", train_steps=50)


def test_slanted_triangular_is_ulmfits():
    def by_hand(step, train_steps=100, cut_fraction=0.1, ratio=32):
        cut = math.floor(train_steps * cut_fraction)
        p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_fraction - 1))
        return (1 + p * (ratio - 1)) / ratio

    steps = [0, 5, 10, 50, 99, 100]
    assert rates("slanted_triangular", steps) == pytest.approx([by_hand(step) for step in steps])
    assert rates("slanted_triangular", [0, 10, 100, 150]) == pytest.approx(
        [1 / 32, 1, 1 / 32, 1 / 32]
    )


def test_cyclic_rises_and_falls_in_decay_steps():
    hparams = "learning_rate_decay_steps=10,learning_rate_end_factor=0.5"
    found = rates("cyclic", [0, 5, 10, 15, 20, 30], hparams)
    assert found == pytest.approx([0.5, 0.75, 1.0, 0.75, 0.5, 1.0])


def test_a_warm_up_with_an_inverse_square_root_is_two_factors():
    hparams = "learning_rate_warmup_steps=16"
    found = rates("linear_warmup*rsqrt_normalized_decay", [0, 8, 16, 64], hparams)
    assert found == pytest.approx([0, 0.5, 1, 0.5])


def test_the_minimum_holds_after_the_warm_up():
    hparams = "learning_rate_warmup_steps=10,learning_rate_minimum=0.3"
    found = rates("linear_warmup*single_cycle_cos_decay", [0, 5, 10, 100], hparams)
    assert found == pytest.approx([0, 0.5, 1, 0.3])
