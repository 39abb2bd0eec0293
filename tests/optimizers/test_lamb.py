"""LAMB is You et al. 2020, algorithm 2."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.hparam import HParams

HPARAMS = HParams().parse("optimizer_adam_beta1=0.9,optimizer_adam_beta2=0.99,weight_decay=0.1")


def by_hand(weight, gradients, *, rate, is_matrix):
    """In float64; vectors have no decay and a ratio of 1."""
    weight = weight.astype(np.float64)
    first = second = np.zeros_like(weight)
    for t, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        update = (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.99**t)) + 1e-6)
        if is_matrix:
            update = update + 0.1 * weight
            norms = np.linalg.norm(weight), np.linalg.norm(update)
            update = update * (norms[0] / norms[1] if min(norms) > 0 else 1.0)
        weight = weight - rate * update
    return weight


def run(weight, gradients, *, rate):
    parameter = nn.Parameter(torch.tensor(weight))
    optimizer = registry.optimizer("lamb")([("weight", parameter)], HPARAMS)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    return parameter.detach().numpy()


def test_matrices_and_vectors_move_as_computed_by_hand():
    random = np.random.default_rng(1)
    for shape in [(3, 4), (5,)]:
        weight = random.standard_normal(shape).astype(np.float32)
        gradients = random.standard_normal((4, *shape)).astype(np.float32)
        expected = by_hand(weight, gradients, rate=0.1, is_matrix=len(shape) > 1)
        np.testing.assert_allclose(run(weight, gradients, rate=0.1), expected, rtol=1e-5)


def test_a_matrix_of_zeros_moves():
    zeros = np.zeros((2, 3), np.float32)
    gradients = np.ones((1, 2, 3), np.float32)
    expected = by_hand(zeros, gradients, rate=0.1, is_matrix=True)
    assert (expected < 0).all()
    np.testing.assert_allclose(run(zeros, gradients, rate=0.1), expected, rtol=1e-5)
