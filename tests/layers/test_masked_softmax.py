"""A softmax over the positions with data is one of these alone."""

from __future__ import annotations

import torch

from t2t_torch.layers.pooling import MaskedSoftmax, masked_softmax

LENGTHS = (5, 2, 3)
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]  # [3, 5]


def test_the_weights_are_those_of_the_positions_with_data_alone():
    torch.manual_seed(0)
    scores = torch.randn(4, 3, 2, 5)  # two queries of each of three texts, by four heads
    weights = masked_softmax(scores, MASK[:, None])
    for row, length in enumerate(LENGTHS):
        alone = scores[:, row, :, :length].softmax(-1)
        torch.testing.assert_close(weights[:, row, :, :length], alone)
        assert (weights[:, row, :, length:] == 0).all()


def test_a_mask_may_have_the_shape_of_the_scores():
    torch.manual_seed(0)
    scores = torch.randn(3, 5)
    assert torch.equal(
        masked_softmax(scores, MASK), masked_softmax(scores[:, None], MASK[:, None])[:, 0]
    )


def test_of_nothing_the_weights_are_zero():
    scores = torch.randn(1, 2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.zeros(1, 1, 3, dtype=torch.bool))
    weights.sum().backward()
    assert (weights == 0).all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_weights_are_found_in_float32_and_a_module_gives_them_in_the_type_of_the_scores():
    torch.manual_seed(0)
    scores = torch.randn(3, 2, 5).bfloat16()
    weights = masked_softmax(scores, MASK[:, None])
    assert torch.equal(weights, masked_softmax(scores.float(), MASK[:, None]))
    assert torch.equal(MaskedSoftmax()(scores, MASK), weights.bfloat16())
