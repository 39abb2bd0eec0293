"""Weights of rows that add up to less than one count as they are."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.optim.gradient import GradientFinisher
from t2t_torch.train.task import TrainMeter


@pytest.mark.parametrize(("weight", "expected"), [(0.25, 8.0), (4.0, 0.5), (0.0, 2.0)])
def test_gradients_are_divided_by_the_weight_of_the_step(weight, expected):
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.tensor([2.0])
    GradientFinisher([("w", parameter)], clip_grad_norm=0.0, weight_decay=0.0)(
        torch.tensor(weight, dtype=torch.float64)
    )
    assert parameter.grad.item() == pytest.approx(expected)


@pytest.mark.parametrize(("loss", "weight", "expected"), [(0.5, 0.25, 2.0), (0.0, 0.0, 0.0)])
def test_the_reported_loss_is_a_mean_over_the_weights(loss, weight, expected):
    meter = TrainMeter(torch.device("cpu"))
    meter.add(torch.tensor([loss, weight, 3.0, 3.0]).double(), torch.tensor(1.0))
    assert meter.read()["loss"] == pytest.approx(expected)
