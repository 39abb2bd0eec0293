"""Attention pooling is Lin's, written out slowly, and nothing looks at padding."""

from __future__ import annotations

import math

import torch

from t2t_torch.layers.pooling import AttentionPooling, hop_penalty

LENGTHS = (5, 2, 3)


def made(hops=3):
    torch.manual_seed(0)
    pooling = AttentionPooling(4, 6, hops)
    hidden = torch.randn(len(LENGTHS), max(LENGTHS), 4)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return pooling, hidden, mask


def test_the_weights_and_the_means_are_those_of_a_slow_loop():
    pooling, hidden, mask = made()
    means, weights = pooling(hidden, mask)
    w1, w2 = pooling.inner.weight.detach(), pooling.outer.weight.detach()
    for b, length in enumerate(LENGTHS):
        for hop in range(3):
            scores = [float(w2[hop] @ (w1 @ hidden[b, s]).tanh()) for s in range(length)]
            whole = sum(math.exp(score) for score in scores)
            slow = torch.tensor([math.exp(score) / whole for score in scores])
            torch.testing.assert_close(weights[b, hop, :length], slow)
            assert (weights[b, hop, length:] == 0).all()
            mean = sum(slow[s] * hidden[b, s] for s in range(length))
            torch.testing.assert_close(means[b, 4 * hop : 4 * hop + 4], mean)


def test_the_penalty_is_that_of_a_slow_loop():
    pooling, hidden, mask = made()
    weights = pooling(hidden, mask).weights.detach()
    penalty = hop_penalty(weights)
    for b in range(len(LENGTHS)):
        slow = 0.0
        for i in range(3):
            for j in range(3):
                product = sum(float(p * q) for p, q in zip(*weights[b, [i, j]], strict=True))
                slow += (product - (i == j)) ** 2
        torch.testing.assert_close(penalty[b], torch.tensor(slow))


def test_hops_on_one_place_each_have_no_penalty_and_equal_hops_have_one():
    apart = torch.eye(3)[None]
    same = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    assert hop_penalty(apart).tolist() == [0.0]
    assert hop_penalty(same).tolist() == [2.0]


def test_what_stands_at_padding_changes_nothing():
    pooling, hidden, mask = made()
    spoilt = torch.where(mask[..., None], hidden, 1e4)
    assert torch.equal(pooling(hidden, mask).means, pooling(spoilt, mask).means)
