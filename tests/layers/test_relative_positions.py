"""Distances in self-attention, with and without a cache, packed and after a prefix."""

import pytest
import torch

from t2t_torch.layers.attention import (
    AttentionWeights,
    Prefix,
    RelativePositions,
    SelfAttention,
    distances,
)
from t2t_torch.layers.pooling import attend_to, causal, same_segment


def by_definition(q, k, v, mask, positions):
    """Shaw et al. 2018, equations 3 and 4: one head, one pair of places at a time."""
    furthest = positions.furthest
    keys, values = positions.keys.weight, positions.values.weight.t()
    out = torch.zeros_like(q)
    for i in range(len(q)):
        apart = [max(-furthest, min(furthest, j - i)) + furthest for j in range(len(k))]
        scores = torch.stack([q[i].dot(k[j] + keys[d]) for j, d in enumerate(apart)])
        weights = (scores / len(q[i]) ** 0.5).masked_fill(~mask[i], -torch.inf).softmax(0)
        out[i] = sum(weights[j] * (v[j] + values[d]) for j, d in enumerate(apart))
    return out


@pytest.mark.parametrize("furthest", [1, 3, 20])
@pytest.mark.parametrize("training", [True, False])
def test_distances_add_to_keys_and_values_as_the_paper_has_it(furthest, training):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 6, 4)
    positions = RelativePositions(4, furthest)
    mask = torch.rand(2, 1, 6, 6) > 0.3
    mask[..., 0] = True
    with torch.no_grad():
        weights = AttentionWeights(0.0).train(training)
        found = weights(q, k, v, mask, relative=positions)
        below = weights(q, k, v, causal=True, relative=positions)
        for b in range(2):
            for n in range(2):
                parts = q[b, n], k[b, n], v[b, n]
                expected = by_definition(*parts, mask[b, 0], positions)
                torch.testing.assert_close(found[b, n], expected)
                expected = by_definition(*parts, causal(6, q.device)[0, 0], positions)
                torch.testing.assert_close(below[b, n], expected)


def test_the_last_query_stands_at_the_last_key():
    assert distances(2, 3, torch.device("cpu")).tolist() == [[-1, 0, 1], [-2, -1, 0]]


def attention_and_rows(max_relative_position=3, length=9):
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 0.0, max_relative_position).eval()
    return attention, torch.randn(3, length, 8)


def test_steps_see_what_a_causal_pass_sees():
    attention, x = attention_and_rows(length=40)  # longer than the cache's first capacity
    cache = attention.cache(3)
    with torch.no_grad():
        steps = [attention.step(x[:, t : t + 1], cache) for t in range(40)]
        torch.testing.assert_close(torch.cat(steps, 1), attention(x, causal=True))


@pytest.mark.parametrize("max_relative_position", [0, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_steps_after_a_prefix_see_what_a_pass_over_both_sees(max_relative_position, whole):
    """Rows whose prefixes end at different places, two hypotheses of each sentence."""
    attention, x = attention_and_rows(max_relative_position)
    lengths, steps = torch.tensor([5, 2, 4]), 4
    there = torch.arange(5) < lengths[:, None]
    with torch.no_grad():
        mask = attend_to(there) if whole else None
        _, (keys, values) = attention.read(x[:, :5], mask, causal=not whole)
        prefix, cache = Prefix(keys, values, there), attention.cache(6)
        news = torch.randn(6, steps, 8)
        found = [attention.step(news[:, t : t + 1], cache, prefix) for t in range(steps)]
        for row in range(6):
            length = int(lengths[row // 2])
            joined = torch.cat([x[row // 2, :length], news[row]])[None]
            mask = causal(length + steps, x.device).clone()
            mask[..., :length] |= whole
            expected = attention(joined, mask)[0, length:]
            torch.testing.assert_close(torch.cat(found, 1)[row], expected)


def test_packed_examples_keep_their_own_distances():
    attention, x = attention_and_rows(length=7)
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 2]]).expand(3, -1)
    with torch.no_grad():
        packed = attention(x, same_segment(segments, segments))
        torch.testing.assert_close(packed[:, :3], attention(x[:, :3]))
        torch.testing.assert_close(packed[:, 3:], attention(x[:, 3:]))


def test_every_distance_learns():
    attention, x = attention_and_rows()
    attention(x).square().sum().backward()
    keys, values = attention.relative.keys.weight.grad, attention.relative.values.weight.grad
    for of_distances in (keys, values.t()):
        assert (of_distances.abs().sum(1) > 0).all()
