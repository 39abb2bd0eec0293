"""How weights begin."""

import math

import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.layers.attention import Projections
from t2t_torch.layers.initialization import initialize

HPARAMS = registry.hparams("transformer_test")


@pytest.mark.parametrize("initializer", ["uniform_unit_scaling", "normal_unit_scaling"])
def test_unit_scaling_gives_a_variance_of_gain_over_the_average_fan(initializer):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 100), Projections(200, (100, 100, 100)))
    initialize(module, HPARAMS.replace(initializer=initializer, initializer_gain=2.0))
    assert module[0].weight.var().item() == pytest.approx(2.0 / 200, rel=0.03)
    assert not module[0].bias.any()
    for part in module[1].weight.chunk(3):  # as three maps of 200 -> 100, not one of 200 -> 300
        assert part.var().item() == pytest.approx(2.0 / 150, rel=0.05)


def test_uniform_stays_below_a_tenth_of_the_gain():
    module = nn.Linear(100, 100)
    initialize(module, HPARAMS.replace(initializer="uniform", initializer_gain=0.5))
    assert 0.049 < module.weight.abs().max().item() <= 0.05


def test_orthogonal_rows_have_the_length_of_the_gain():
    module = Projections(40, (30, 30))
    initialize(module, HPARAMS.replace(initializer="orthogonal", initializer_gain=1.5))
    for part in module.weight.chunk(2):
        torch.testing.assert_close(part @ part.t(), 1.5**2 * torch.eye(30), atol=1e-4, rtol=0)


def test_xavier_has_tensorflows_limit():
    module = nn.Linear(50, 100)
    initialize(module, HPARAMS.replace(initializer="xavier"))
    limit = math.sqrt(6 / 150)
    assert 0.98 * limit < module.weight.abs().max().item() <= limit
