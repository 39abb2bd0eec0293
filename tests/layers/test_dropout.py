"""Dropout."""

import pytest
import torch

from t2t_torch.layers.dropout import Dropout, keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_as_many_are_zeroed_as_the_rate_says(rate):
    torch.manual_seed(0)
    kept = keep_mask(torch.Size([1000, 1001]), rate).float().mean().item()
    assert kept == pytest.approx(1 - rate, abs=4 * (rate * (1 - rate) / 1001000) ** 0.5)


def test_neighbours_are_independent():
    torch.manual_seed(0)
    kept = keep_mask(torch.Size([1 << 20]), 0.5).float() - 0.5
    for lag in (1, 2, 3, 4, 5, 8):
        assert abs((kept[:-lag] * kept[lag:]).mean().item()) < 0.25 * 4 / 1024


def test_what_is_kept_is_scaled_so_that_the_mean_stays():
    dropout = Dropout(0.25)
    y = dropout(torch.ones(100, 100))
    assert y.unique().tolist() == [0.0, pytest.approx(4 / 3)]


def test_the_seed_fixes_the_mask():
    masks = []
    for _ in range(2):
        torch.manual_seed(5)
        masks.append(keep_mask(torch.Size([777]), 0.5))
    assert torch.equal(*masks)
    assert not torch.equal(masks[0], keep_mask(torch.Size([777]), 0.5))


def test_gradients_go_where_activations_went():
    dropout = Dropout(0.5)
    x = torch.randn(64, 64, requires_grad=True)
    y = dropout(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)


def test_evaluation_changes_nothing():
    x = torch.randn(10, 10)
    assert Dropout(0.5).eval()(x) is x
