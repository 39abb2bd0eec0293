"""Slots of optimizers that are no tensors, and those whose type torch would round."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.tensors import optimizer_tensors, slot_of, stored_slot

NUMBERS = [0, 7, -3, 2**53 + 1, -(2**63), 2**63 - 1, True, False, 0.1, -0.0, 1e-320, math.inf]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_comes_back_as_what_it_was(number):
    ending, tensor = stored_slot(number)
    name, value = slot_of(f"step{ending}", tensor)
    assert (name, value, type(value)) == ("step", number, type(number))
    assert math.copysign(1, value) == math.copysign(1, number)


def test_a_number_of_numpy_comes_back_with_the_same_bits():
    ending, tensor = stored_slot(np.float64(0.1))
    assert slot_of(f"beta{ending}", tensor) == ("beta", 0.1)


def test_not_a_number_comes_back():
    ending, tensor = stored_slot(math.nan)
    assert math.isnan(slot_of(f"norm{ending}", tensor)[1])


@pytest.mark.parametrize("value", [[3], "three", 2**63, None, 1j])
def test_what_is_no_number_of_64_bits_is_refused(value):
    with pytest.raises(TypeError, match="neither a tensor nor a number"):
        stored_slot(value)


def test_a_tensor_whose_name_looks_like_a_mark_stays_one():
    tensor = torch.arange(3.0)
    name, value = slot_of("odd#int", tensor)
    assert name == "odd#int"
    assert value is tensor


class RAdamOf2019(torch.optim.Optimizer):
    """As it was copied from repository to repository: it counts its steps as Python does."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr, "buffer": [[None, None, None] for _ in range(10)]})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["decay"] = 1.0
                    state["warm"] = False
                    state["exp_avg"] = torch.zeros_like(p.data)
                    state["exact"] = torch.zeros(2, dtype=torch.float64)
                state["step"] += 1
                state["decay"] *= 0.9
                state["warm"] = state["step"] > 2
                state["exp_avg"].mul_(0.9).add_(p.grad.data)
                state["exact"] += 1 / 3
                p.data.add_(state["exp_avg"], alpha=-group["lr"] / state["step"] * state["decay"])


def steps(model, optimizer, count):
    for seed in range(count):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


def saved_and_loaded(path, model, optimizer, made):
    """Returns a model and an optimizer made of a checkpoint of these."""
    snapshot = Snapshot.take(model, optimizer, TrainerState(step=1))
    checkpoint = CheckpointDirectory(path).save(snapshot)
    other = nn.Linear(3, 2)
    checkpoint.load_model(other)
    other_optimizer = made(other.parameters())
    checkpoint.load_optimizer(other_optimizer, other)
    return other, other_optimizer


def slots_of(optimizer):
    return [
        (index, name, value.tolist() if isinstance(value, torch.Tensor) else value, type(value))
        for index, slots in optimizer.state_dict()["state"].items()
        for name, value in slots.items()
    ]


def test_an_optimizer_that_counts_in_python_goes_on_bit_by_bit(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = RAdamOf2019(model.parameters())
    steps(model, optimizer, 3)
    other, other_optimizer = saved_and_loaded(tmp_path, model, optimizer, RAdamOf2019)

    assert sorted(slots_of(other_optimizer)) == sorted(slots_of(optimizer))
    assert other_optimizer.state[other.weight]["exact"].dtype == torch.float64
    for each, its in ((model, optimizer), (other, other_optimizer)):
        steps(each, its, 4)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


OPTIMIZERS = {
    "ASGD": {"t0": 1, "lambd": 0.1},
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_of_torch_goes_on_bit_by_bit(tmp_path, name):
    def made(parameters):
        return getattr(torch.optim, name)(parameters, lr=0.1, **OPTIMIZERS[name])

    model = nn.Linear(3, 2)
    optimizer = made(model.parameters())
    steps(model, optimizer, 3)
    other, other_optimizer = saved_and_loaded(tmp_path, model, optimizer, made)
    for each, its in ((model, optimizer), (other, other_optimizer)):
        steps(each, its, 4)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


class Lookahead(torch.optim.SGD):
    """Keeps weights of its own beside what optimizers keep."""

    def state_dict(self):
        return {**super().state_dict(), "slow_state": {}}


def test_what_stands_beside_the_slots_is_refused_and_not_lost(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = Lookahead(model.parameters(), lr=0.1)
    with pytest.raises(CheckpointError, match="Lookahead keeps slow_state beside the slots"):
        Snapshot.take(model, optimizer, TrainerState(step=1))


def test_a_state_of_no_parameter_is_refused_and_not_lost():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state["all"]["step"] = 3
    with pytest.raises(CheckpointError, match="SGD keeps all beside the slots"):
        Snapshot.take(model, optimizer, TrainerState(step=1))


def test_a_sparse_slot_is_refused_by_name():
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.tensor([1, 3])).sum().backward()
    optimizer.step()
    with pytest.raises(
        CheckpointError, match=r"'momentum_buffer' as Tensor, of weight .*sparse_coo"
    ):
        optimizer_tensors(optimizer, model)
