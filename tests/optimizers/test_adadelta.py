"""Adadelta is the paper's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.hparam import HParams


def test_an_update_is_that_of_the_paper():
    parameter = nn.Parameter(torch.zeros([]))
    optimizer = registry.optimizer("adadelta")([parameter], HParams())
    optimizer.param_groups[0]["lr"] = 1.0
    weight = squares = updates = 0.0
    for gradient in (2.0, -1.0, 0.5):
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        squares = 0.95 * squares + 0.05 * gradient**2  # Zeiler 2012, algorithm 1
        change = -math.sqrt(updates + 1e-6) / math.sqrt(squares + 1e-6) * gradient
        updates = 0.95 * updates + 0.05 * change**2
        weight += change
        assert parameter.item() == pytest.approx(weight, rel=1e-4)
