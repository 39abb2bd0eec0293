"""What the loop asks of each registered optimizer, whatever it computes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.hparam import HParams
from t2t_torch.optim.parameter_groups import parameter_groups

OPTIMIZERS = registry.list_names("optimizer")
RATES = {"adadelta": 20.0}  # it finds its steps itself, and begins with small ones
SPECIAL = "optimizer_adafactor_beta1=0.9,optimizer_momentum_nesterov=true,weight_decay=0.1"


class Net(nn.Module):
    """A table, two layers and a scalar: every rank that an optimizer may meet."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.modalities = nn.Embedding(5, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.gain = nn.Parameter(torch.ones([]))
        self.cube = nn.Parameter(torch.ones(2, 4, 4))
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)


def hparams_of(optimizer, more=""):
    return HParams().parse(f"optimizer={optimizer},{SPECIAL}").parse(more)


def made(optimizer, more=""):
    model, hparams = Net(), hparams_of(optimizer, more)
    return model, registry.optimizer(optimizer)(parameter_groups(model, hparams), hparams)


def set_gradients(model, step):
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def update(model, optimizer, step, *, finite=True, rate=0.01):
    """An update as the loop does it."""
    set_gradients(model, step)
    if not finite:
        next(model.parameters()).grad.fill_(math.nan)
    for group in optimizer.param_groups:
        group["lr"], group["updates"] = rate * group["lr_scale"], step
        if group["unfreeze_step"] > step:
            for parameter in group["params"]:
                parameter.grad = None
    if all(group.get("fused") for group in optimizer.param_groups):
        optimizer.found_inf = torch.tensor(0.0 if finite else 1.0)
        optimizer.step()
    elif finite:
        optimizer.step()


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_equal(found, expected):
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_weight_moves_and_every_slot_is_a_tensor(name):
    model, optimizer = made(name)
    before = weights(model)
    for step in range(3):
        update(model, optimizer, step)
    after = weights(model)
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    slots = [value for state in optimizer.state.values() for value in state.values()]
    assert all(isinstance(value, Tensor) and value.isfinite().all() for value in slots)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_down_a_bowl(name):
    model, optimizer = made(name, "weight_decay=0.0")
    heights = []
    for step in range(60):
        heights.append(sum(float((p.detach() - 0.5).square().sum()) for p in model.parameters()))
        for parameter in model.parameters():
            parameter.grad = 2 * (parameter.detach() - 0.5)
        for group in optimizer.param_groups:
            group["lr"], group["updates"] = RATES.get(name, 0.05), step
        optimizer.step()
    assert heights[-1] < 0.5 * heights[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_on_bit_equal_from_its_slots_alone(name):
    whole, optimizer = made(name)
    for step in range(3):
        update(whole, optimizer, step)
    resumed, other = made(name)
    with torch.no_grad():
        for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
            ours.copy_(theirs)
    slots = {
        index: {slot: value.clone() for slot, value in state.items()}
        for index, state in optimizer.state_dict()["state"].items()
    }
    groups = other.state_dict()["param_groups"]  # as a checkpoint: only slots come from it
    other.load_state_dict({"state": slots, "param_groups": groups})
    for step in range(3, 6):
        update(whole, optimizer, step)
        update(resumed, other, step)
    assert_equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bad", [0, 2])
def test_a_step_that_is_not_finite_moves_nothing_and_spoils_nothing(name, bad):
    model, optimizer = made(name)
    for step in range(5):
        before = weights(model)
        update(model, optimizer, step, finite=step != bad)
        if step == bad:
            assert_equal(weights(model), before)
    assert all(value.isfinite().all() for value in weights(model).values())
    for state in optimizer.state.values():
        assert all(value.isfinite().all() for value in state.values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_group_learns_at_its_own_rate_and_moves_only_when_it_is_unfrozen(name):
    hparams = "learning_rate_scales=[layers.0=0.0],unfreeze_schedule=[layers.1=2]"
    model, optimizer = made(name, f"{hparams},weight_decay=0.0")
    before = weights(model)
    for step in range(3):
        update(model, optimizer, step)
        now = weights(model)
        assert torch.equal(now["layers.0.weight"], before["layers.0.weight"])
        assert torch.equal(now["layers.1.weight"], before["layers.1.weight"]) == (step < 2)
        assert not torch.equal(now["gain"], before["gain"])


@pytest.mark.parametrize("name", ["adam_w", "lamb", "muon"])
def test_what_decays_by_itself_leaves_vectors_alone_in_every_group(name):
    model, optimizer = made(name, "learning_rate_scales=[layers.0=0.5]")
    for group in optimizer.param_groups:
        expected = 0.1 if group["params"][0].ndim > 1 else 0.0
        assert group["weight_decay"] == expected
        assert len({p.ndim > 1 for p in group["params"]}) == 1
    grouped = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, model.parameters()))
    assert {group["lr_scale"] for group in optimizer.param_groups} == {0.5, 1.0}


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"adam_w", "lamb", "muon"}))
def test_the_others_leave_the_decay_to_the_loss(name):
    _, optimizer = made(name)
    assert not any(group.get("weight_decay") for group in optimizer.param_groups)


@pytest.mark.parametrize("name", ["adam", "adam_w", "momentum", "multistep_adam", "sgd"])
def test_those_that_torch_has_fused_are_fused(name):
    _, optimizer = made(name)
    assert all(group["fused"] for group in optimizer.param_groups)
