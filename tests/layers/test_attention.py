"""Attention."""

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.layers.attention import (
    AttentionWeights,
    CrossAttention,
    KeyValueCache,
    LocalMask,
    SelfAttention,
)
from t2t_torch.layers.pooling import never_empty
from t2t_torch.models.transformer import Transformer


def by_definition(q, k, v, mask):
    """One head, one query at a time."""
    out = torch.zeros_like(q)
    for t in range(len(q)):
        scores = torch.stack([q[t].dot(key) / len(q[t]) ** 0.5 for key in k])
        scores[~mask[t]] = float("-inf")
        out[t] = scores.softmax(0) @ v
    return out


@pytest.mark.parametrize("training", [True, False])
def test_attention_is_that_of_the_definition_on_both_paths(training):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 5, 4)
    mask = torch.rand(2, 1, 5, 5) > 0.3
    mask[..., 0] = True
    with torch.set_grad_enabled(training):
        found = AttentionWeights(0.0).train(training)(q, k, v, mask)
        causal = AttentionWeights(0.0).train(training)(q, k, v, causal=True)
    below = torch.ones(5, 5, dtype=torch.bool).tril()
    for b in range(2):
        for n in range(2):
            parts = q[b, n], k[b, n], v[b, n]
            torch.testing.assert_close(found[b, n], by_definition(*parts, mask[b, 0]))
            torch.testing.assert_close(causal[b, n], by_definition(*parts, below))


@pytest.mark.parametrize(("queries", "fused"), [(1, False), (2, True)])
def test_a_single_query_is_not_given_to_the_fused_kernel(monkeypatch, queries, fused):
    """A step of decoding on a GPU: cuDNN would plan the kernel for each number of keys."""
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *args, **kwargs: calls.append(1) or kernel(*args, **kwargs),
    )
    q, k = (torch.empty(3, 2, length, 4, device="meta") for length in (queries, 7))
    assert AttentionWeights(0.0)(q, k, k).shape == q.shape
    assert bool(calls) is fused


def test_steps_see_what_a_causal_pass_sees():
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 0.0).eval()
    x = torch.randn(3, 70, 8)  # longer than the cache's first capacity
    cache = attention.cache(3)
    with torch.no_grad():
        steps = [attention.step(x[:, t : t + 1], cache) for t in range(70)]
        torch.testing.assert_close(torch.cat(steps, 1), attention(x, causal=True))


def test_a_reordered_cache_holds_the_rows_asked_for():
    cache = KeyValueCache.empty(4, 1, 1, like=torch.zeros(0))
    for t in range(3):
        kv = torch.arange(4.0).view(4, 1, 1, 1) * 10 + t
        cache.append(kv, -kv)
    other = cache.reorder(torch.tensor([2, 2, 0]))
    keys, values = other.append(torch.zeros(3, 1, 1, 1), torch.zeros(3, 1, 1, 1))
    assert keys[:3, :, 0, 0].t().tolist() == [[20, 21, 22], [20, 21, 22], [0, 1, 2]]
    assert torch.equal(keys, -values)
    assert cache.length == 3


def test_memory_is_masked():
    torch.manual_seed(0)
    attention = CrossAttention(8, 2, 0.0).eval()
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 6, 8)
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    mask[..., 4:] = False
    out = attention(x, attention.remember(memory), mask)
    memory[:, 4:] = 99.0
    torch.testing.assert_close(attention(x, attention.remember(memory), mask), out)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(HParamsError, match=r"hidden_size=10 .* num_heads=4"):
        SelfAttention(10, 4, 0.0)


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("length", [29, 37])
def test_local_attention_computes_only_the_part_near_the_diagonal(is_masked, is_packed, length):
    hparams = registry.hparams("transformer_tiny_local").replace(hidden_size=16)
    kind = "local_mask_right" if is_masked else "local_unmasked"
    model = Transformer(hparams.replace(self_attention_type=kind), testing.text_features()).eval()
    positions = torch.arange(length)
    data = positions < torch.tensor([[length], [length - 9]])
    mask = data[:, None, None]
    if is_packed:  # texts that begin at 0, 5 and 18
        starts = torch.tensor([0, 5, 18])
        segments = (positions[:, None] >= starts).sum(1)
        positions = (positions - starts[segments - 1]).expand(2, -1)
        mask = mask & (segments[:, None] == segments)
    mask = never_empty(mask & model._local_mask(positions, is_masked=is_masked))
    bounded = model._bounded(mask, positions, is_masked=is_masked)
    assert isinstance(bounded, LocalMask) and bounded.is_sparse
    attention = SelfAttention(16, 2, 0.0)
    x = torch.randn(2, length, 16, requires_grad=True)
    weights = torch.randn(2, length, 16) * data[..., None]
    whole, near = attention(x, mask), attention(x, bounded)
    torch.testing.assert_close(near[data], whole[data])
    for_x = [torch.autograd.grad((one * weights).sum(), x)[0] for one in (whole, near)]
    torch.testing.assert_close(*for_x)
