"""The loss, against the definition."""

import math

import pytest
import torch

from t2t_torch.layers import cross_entropy as module
from t2t_torch.layers.cross_entropy import cross_entropy, linear_cross_entropy


def by_definition(logits, target, label_smoothing):
    """Cross entropy with a smoothed target, less that target's entropy; one position."""
    vocab_size = len(logits)
    low = label_smoothing / (vocab_size - 1)
    q = [1 - label_smoothing if i == target else low for i in range(vocab_size)]
    log_p = logits.double().log_softmax(0).tolist()
    entropy = -sum(p * math.log(p) for p in q if p > 0)
    return -sum(a * b for a, b in zip(q, log_p, strict=True)) - entropy


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_that_of_the_definition(label_smoothing):
    torch.manual_seed(0)
    logits = torch.randn(6, 11) * 3
    targets = torch.tensor([0, 3, 10, 5, 5, 1])
    expected = [by_definition(*pair, label_smoothing) for pair in zip(logits, targets, strict=True)]
    found = cross_entropy(logits, targets, label_smoothing)
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_bytes", [1, 10**4, 2**30])
def test_the_chunked_loss_and_its_gradients_are_those_of_the_logits(
    label_smoothing, chunk_bytes, monkeypatch
):
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
    torch.manual_seed(0)
    hidden = torch.randn(50, 8, requires_grad=True)
    weight = torch.randn(37, 8, requires_grad=True)
    targets = torch.randint(0, 37, (50,))
    fused = linear_cross_entropy(hidden, weight, targets, label_smoothing)
    plain = cross_entropy(hidden @ weight.t(), targets, label_smoothing).sum()
    torch.testing.assert_close(fused, plain, atol=1e-3, rtol=1e-5)
    found = torch.autograd.grad(fused * 0.25, (hidden, weight))
    expected = torch.autograd.grad(plain * 0.25, (hidden, weight))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_the_chunked_loss_runs_in_the_type_of_autocast():
    torch.manual_seed(0)
    hidden, weight = torch.randn(64, 32), torch.randn(100, 32, requires_grad=True)
    targets = torch.randint(0, 100, (64,))
    exact = linear_cross_entropy(hidden, weight, targets, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = linear_cross_entropy(hidden, weight, targets, 0.1)
    assert rounded != exact
    torch.testing.assert_close(rounded, exact, rtol=5e-3, atol=0.0)
    (gradient,) = torch.autograd.grad(rounded, weight)
    assert gradient.dtype == torch.float32


def test_a_target_of_no_probability_costs_what_it_costs():
    """exp(-300) is 0 in float32: the loss must not be infinite."""
    hidden = torch.tensor([[1.0]])
    weight = torch.tensor([[0.0], [300.0]])
    loss = linear_cross_entropy(hidden, weight, torch.tensor([0]), 0.0)
    assert loss.item() == pytest.approx(300.0)
