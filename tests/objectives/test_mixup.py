"""Mixup of the states that whole examples are predicted from."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Tags, Text
from t2t_torch.objectives.batches import mix_examples
from t2t_torch.objectives.objective import Objective, check_objective
from tests.objectives.test_perturbations import model_of


def test_mixed_states_have_the_losses_of_both_examples():
    model, batch = model_of(ClassLabel, mixup_alpha=0.7)
    objective = Objective(model).train()
    torch.manual_seed(5)
    loss = objective(batch).losses["targets"]
    torch.manual_seed(5)
    ((share, first), (rest, second)), mix = mix_examples(batch, model.features, 0.7)
    states = model.hidden_states(batch)["targets"].states
    mixed = model.modality("targets").top(mix(states))
    both = [
        (view["weight"] * cross_entropy(mixed, view["targets"], reduction="none")).sum()
        for view in (first, second)
    ]
    assert 0 < share < 1 and not torch.equal(mix(states), states)
    torch.testing.assert_close(loss.sum, share * both[0] + rest * both[1])
    weights = [view["weight"].sum() for view in (first, second)]
    torch.testing.assert_close(loss.weight, share * weights[0] + rest * weights[1])


def test_mixed_states_are_trained_with_noise_and_an_adversary():
    more = {"r3f_weight": 1.0, "r3f_epsilon": 0.1, "adversarial_steps": 2}
    model, batch = model_of(ClassLabel, mixup_alpha=0.7)
    torch.manual_seed(5)
    plain = Objective(model).train()(batch).losses["targets"].sum
    model, batch = model_of(ClassLabel, mixup_alpha=0.7, **more)
    torch.manual_seed(5)
    harder = Objective(model).train()(batch).losses["targets"].sum
    assert harder > 1.5 * plain
    harder.backward()
    assert all(one.grad is not None for one in model.parameters())


def test_nothing_is_mixed_in_evaluation():
    model, batch = model_of(ClassLabel, mixup_alpha=0.7)
    objective = Objective(model).eval()
    losses = [objective(batch).losses["targets"].sum for _ in range(2)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("kind", [Text, Tags])
def test_states_of_places_are_not_mixed(kind):
    model, _ = model_of(kind)
    with pytest.raises(HParamsError, match="whole examples, not targets"):
        check_objective(model.hparams.replace(mixup_alpha=0.4), model.features)


def test_a_teacher_of_mixed_states_is_refused():
    model, _ = model_of(ClassLabel)
    hparams = model.hparams.replace(mixup_alpha=0.4, distill_from="run")
    with pytest.raises(HParamsError, match="whole examples, not distill_from"):
        check_objective(hparams, model.features)
