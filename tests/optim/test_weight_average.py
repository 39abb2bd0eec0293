"""The average of the weights, compared with numpy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.optim.gradient import WeightAverage


class Model(nn.Module):
    """A table that enters and leaves, a vector, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Linear(2, 3, bias=False)
        self.top = nn.Linear(2, 3, bias=False)
        self.top.weight = self.bottom.weight
        self.gain = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))


def average_of(hparams, model):
    return WeightAverage.of(HParams().parse(hparams), model)


def walk(model, step):
    """Moves the weights as no optimizer would: another place for each step."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))


def path(steps):
    """The table at each step from 1, [steps, 3, 2] float64."""
    model, seen = Model(), []
    for step in range(1, steps + 1):
        walk(model, step)
        seen.append(model.bottom.weight.detach().double().numpy().copy())
    return np.stack(seen)


def run(hparams, steps, *, stop=None):
    """The average after so many steps; taken over by another one after `stop`."""
    model = Model()
    nn.init.zeros_(model.bottom.weight)
    average = average_of(hparams, model)
    for step in range(1, steps + 1):
        walk(model, step)
        average.update(model, step)
        if step == stop:
            saved = {name: tensor.clone() for name, tensor in average.tensors().items()}
            average = average_of(hparams, Model())
            average.load(saved)
    return average


def test_without_settings_there_is_no_average():
    assert average_of("", Model()) is None


def test_two_averages_at_once_are_refused():
    with pytest.raises(HParamsError, match=r"two averages"):
        average_of("ema_decay=0.9,swa_start_step=5", Model())


def test_the_moving_average_is_numpys():
    expected = np.zeros((3, 2))
    for step, weights in enumerate(path(30), 1):
        kept = min(0.7, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * weights
    found = run("ema_decay=0.7", 30).tensors()["bottom.weight"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_mean_is_numpys_from_its_start_at_its_distance():
    expected = path(20)[[4, 7, 10, 13, 16, 19]].mean(0)  # after steps 5, 8 ... 20
    found = run("swa_start_step=5,swa_every=3", 20).tensors()["bottom.weight"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_mean_that_waits_begins_after_the_step_that_it_is_told():
    model = Model()
    average = average_of("swa_patience=3", model)
    for step in range(1, 9):
        walk(model, step)
        average.update(model, step, start=4 if step > 4 else -1)
        assert bool(average.tensors()) == (step > 4)
    expected = path(8)[4:].mean(0)  # after steps 5 to 8
    found = average.tensors()["bottom.weight"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hparams", ["ema_decay=0.9", "swa_start_step=4,swa_every=2"])
@pytest.mark.parametrize("stop", [1, 4, 5, 9])
def test_what_goes_on_from_its_tensors_is_bit_equal(hparams, stop):
    whole, resumed = run(hparams, 12).tensors(), run(hparams, 12, stop=stop).tensors()
    assert list(whole) == list(resumed)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_weight_that_stands_still_stays_what_it_is():
    model = Model()
    average = average_of("ema_decay=0.9", model)
    for step in range(1, 50):
        average.update(model, step)
    assert torch.equal(average.tensors()["bottom.weight"], model.bottom.weight)


def test_a_shared_weight_stands_once_under_its_first_name_in_float32():
    tensors = average_of("ema_decay=0.9", Model().bfloat16()).tensors()
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "gain": torch.float32,
        "bottom.weight": torch.float32,
    }


def test_inside_the_model_has_the_average_and_after_its_own_to_the_bit():
    model = Model()
    average = average_of("ema_decay=0.9", model)
    walk(model, 1)
    average.update(model, 1)
    own = model.bottom.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt), average.applied(model):
        assert torch.equal(model.bottom.weight, average.tensors()["bottom.weight"])
        assert model.top.weight is model.bottom.weight
        assert not torch.equal(model.bottom.weight, own)
        raise KeyboardInterrupt
    assert torch.equal(model.bottom.weight, own)


def test_before_the_mean_begins_the_model_keeps_its_own():
    model = Model()
    average = average_of("swa_start_step=5", model)
    walk(model, 1)
    average.update(model, 1)
    own = model.bottom.weight.detach().clone()
    with average.applied(model):
        assert torch.equal(model.bottom.weight, own)
    assert average.tensors() == {}
    average.load({})
    assert average.tensors() == {}


@pytest.mark.parametrize("hparams", ["ema_decay=0.9", "swa_start_step=1"])
def test_the_average_of_another_model_is_refused(hparams):
    average = average_of(hparams, Model())
    with pytest.raises(CheckpointError, match=r"another model.*gain"):
        average.load({"bottom.weight": torch.zeros(3, 2)})
    if "ema" in hparams:
        with pytest.raises(CheckpointError, match=r"another model.*gain"):
            average.load({"bottom.weight": torch.zeros(3, 2), "gain": torch.zeros(4)})
