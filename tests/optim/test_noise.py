"""Noise on gradients and weights is a function of (seed, step)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.optim.gradient import GradientFinisher, WeightNoise


class Model(nn.Module):
    """A table outside the body, a layer, one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.modalities = nn.ModuleDict({"targets": nn.Embedding(300, 10)})
        self.layer = nn.Linear(100, 100)
        self.late = nn.Linear(3, 3)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


def finished(*, noise, weight, step=0, seed=1, clip=0.0, model=None):
    model = model or Model()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    finish = GradientFinisher(
        model.named_parameters(), clip_grad_norm=clip, weight_decay=0.0, grad_noise_scale=noise
    )
    norm = finish(torch.tensor(weight), seed=seed, step=step)
    return model.layer.weight.grad, norm


def test_the_noise_of_gradients_has_its_deviation_whatever_the_weight_of_the_step():
    for weight in (1.0, 1000.0):
        gradient, norm = finished(noise=0.5, weight=weight)
        # A normal cut off at two deviations has one of 0.8796.
        assert float(gradient.std()) == pytest.approx(0.5 * 0.8796, rel=0.03)
        assert float(gradient.abs().max()) <= 1.0 + 1e-6
        assert float(norm) == pytest.approx(0.5 * 0.8796 * (3000 + 10100 + 12) ** 0.5, rel=0.03)


def test_noise_is_clipped_with_the_gradient():
    gradient, _ = finished(noise=0.5, weight=1.0, clip=1.0)
    assert float(gradient.norm()) < 1.0


def test_noise_depends_on_seed_and_step_and_on_nothing_else():
    torch.manual_seed(1)
    first, _ = finished(noise=0.5, weight=1.0, step=3)
    torch.manual_seed(2)
    again, _ = finished(noise=0.5, weight=1.0, step=3)
    assert torch.equal(first, again)
    assert not torch.equal(first, finished(noise=0.5, weight=1.0, step=4)[0])
    assert not torch.equal(first, finished(noise=0.5, weight=1.0, step=3, seed=2)[0])


def test_drawing_noise_leaves_dropouts_generator_alone():
    model = Model()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    finished(noise=0.5, weight=1.0, model=model)
    assert torch.equal(torch.rand(3), expected)


def moved(*, skipped=0.0, step=0):
    model = Model()
    groups = [
        {"params": [model.modalities["targets"].weight, *model.layer.parameters()], "lr": 0.2},
        {"params": list(model.late.parameters()), "lr": 0.2, "unfreeze_step": 5},
    ]
    noise = WeightNoise.of(HParams().parse("weight_noise=3"), model)
    noise(groups, seed=1, step=step, skipped=torch.tensor(skipped))
    return model


def test_the_noise_of_weights_is_relative_to_the_rate_and_in_the_body_alone():
    model = moved()
    expected = 3 * 0.2 * 0.001 * 0.8796
    assert float(model.layer.weight.detach().std()) == pytest.approx(expected, rel=0.03)
    assert not model.modalities["targets"].weight.any()


def test_what_is_frozen_yet_gets_no_noise():
    assert not moved(step=4).late.weight.any()
    assert moved(step=5).late.weight.any()


def test_a_skipped_step_gets_no_noise():
    assert not moved(skipped=1.0).layer.weight.any()


def test_without_the_setting_there_is_none():
    assert WeightNoise.of(HParams(), Model()) is None


@pytest.mark.parametrize("name", ["weight_noise", "grad_noise_scale"])
def test_noise_on_sharded_weights_is_refused(name):
    with pytest.raises(HParamsError, match=rf"{name}=1.0 does not go with shard_weights"):
        WeightNoise.of(HParams().parse(f"{name}=1,shard_weights=true"), Model())


def test_zero_gradients_are_made_on_request_for_what_is_trained():
    model = Model()
    hparams = HParams().parse("optimizer_zero_grads=true,weight_decay=0,clip_grad_norm=0")
    optimizer = torch.optim.SGD(
        [
            {"params": list(model.layer.parameters())},
            {"params": list(model.late.parameters()), "unfreeze_step": 5},
        ]
    )
    model.layer.bias.grad = torch.ones(100)
    GradientFinisher.of(hparams, model, optimizer)(torch.ones([]), step=4)
    assert not model.layer.weight.grad.any()
    assert model.layer.bias.grad.all()
    assert model.late.weight.grad is None
    assert model.modalities["targets"].weight.grad is None
