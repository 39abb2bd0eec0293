"""Rotary and ALiBi positions, RMS norms, grouped queries, a norm of queries and keys."""

import pytest
import torch
from torch.nn import functional as F

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.layers.attention import LinearBiases, RMSNorm, SelfAttention, rotated
from t2t_torch.models.transformer import Transformer
from t2t_torch.models.transformer_lm import TransformerLm
from t2t_torch.text.encoder import IntegerEncoder

OPTIONS = {
    "rotary": {"pos": "rotary"},
    "alibi": {"pos": "alibi"},
    "rms": {"norm_type": "rms", "embedding_norm": True},
    "multi_query": {"num_key_value_heads": 1, "attention_bias": True},
    "qk_norm": {"qk_norm": True, "num_key_value_heads": 1},
}
RELATIVE = {"self_attention_type": "dot_product_relative", "max_relative_position": 3}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_contract_holds(name):
    testing.check_model(Transformer, registry.hparams("transformer_tiny").replace(**OPTIONS[name]))


@pytest.mark.parametrize("name", ["transformer_modern", "transformer_lm_modern"])
def test_the_contract_holds_for_sets(name):
    model = TransformerLm if "_lm_" in name else Transformer
    testing.check_model(model, registry.hparams(name))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["transformer_decoder_only_tiny", "transformer_prefix_lm_tiny"])
@pytest.mark.parametrize("options", [*OPTIONS, "relative"])
def test_prepended_inputs_are_read_with_them(name, options):
    more = {**RELATIVE, "num_key_value_heads": 1} if options == "relative" else OPTIONS[options]
    testing.check_model(Transformer, registry.hparams(name).replace(**more), has_inputs=(True,))


def test_rotated_pairs_are_products_with_complex_numbers():
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    positions = torch.tensor([0, 3, 1, 70, 2])
    numbers = torch.complex(x[..., :4], x[..., 4:])
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(4) / 4)
    expected = numbers * torch.polar(torch.ones_like(angles), angles)
    found = rotated(x, positions)
    torch.testing.assert_close(found[..., :4], expected.real, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[..., 4:], expected.imag, atol=1e-5, rtol=0)


def test_rotary_attention_does_not_change_when_all_positions_move():
    q, k = torch.randn(2, 6, 16).unbind(0)
    positions = torch.arange(6)
    here, there = (rotated(q, p) @ rotated(k, p).T for p in (positions, positions + 100))
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_rms_norm_and_its_gradients_are_those_of_torch(dtype, is_transposed):
    norm, x, gradient = RMSNorm(8, eps=0.1), torch.randn(3, 5, 2, 8), torch.randn(3, 2, 5, 8)
    torch.nn.init.uniform_(norm.weight)
    x = (x.transpose(1, 2) if is_transposed else x.reshape(3, 2, 5, 8)).to(dtype).requires_grad_()
    x64, gain = (t.detach().double().requires_grad_() for t in (x, norm.weight))
    expected = F.rms_norm(x64, (8,), gain, 0.1)
    expected.backward(gradient.double())
    found = norm(x)
    assert found.dtype == dtype
    found.backward(gradient.to(dtype))
    tolerance = {"atol": 0.05, "rtol": 0.05} if dtype == torch.bfloat16 else {}
    for one, other in ((found, expected), (x.grad, x64.grad), (norm.weight.grad, gain.grad)):
        torch.testing.assert_close(one.detach().float(), other.detach().float(), **tolerance)
    torch.testing.assert_close(norm.eval()(x).float(), expected.float(), **tolerance)


def test_large_values_of_half_precision_are_normalized():
    norm, x = RMSNorm(1024, eps=1e-6), torch.full((1, 1024), 2100.0, dtype=torch.float16)
    torch.testing.assert_close(norm(x), torch.ones_like(x))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (4, [2**-2, 2**-4, 2**-6, 2**-8]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (1, [2**-8]),
    ],
)
def test_slopes_of_alibi_are_those_of_the_paper(heads, slopes):
    assert LinearBiases(heads).slopes.tolist() == pytest.approx(slopes)


def test_shared_heads_are_heads_with_equal_weights():
    """Two heads of keys and values for six of queries: as if each had its own copy."""
    few = SelfAttention(24, 6, 0.0, num_key_value_heads=2).eval()
    own = SelfAttention(24, 6, 0.0).eval()
    q, k, v = few.query_key_value.weight.split(few.query_key_value.sizes)
    k, v = (one.unflatten(0, (2, 4)).repeat_interleave(3, 0).flatten(0, 1) for one in (k, v))
    with torch.no_grad():
        own.query_key_value.weight.copy_(torch.cat([q, k, v]))
        own.output.weight.copy_(few.output.weight)
        x = torch.randn(2, 5, 24)
        torch.testing.assert_close(few(x, causal=True), own(x, causal=True))


def test_modern_sets_have_as_many_weights_as_the_sets_they_compare_with():
    for modern, plain, model in (
        ("transformer_modern", "transformer_multi30k", Transformer),
        ("transformer_lm_modern", "transformer_lm_shakespeare", TransformerLm),
    ):
        text = Text(IntegerEncoder(2**13))  # as many ids as Multi30k's vocabulary has
        inputs = {"inputs": text} if model is Transformer else {}
        features = Features(inputs, {"targets": text})
        sizes = [
            sum(p.numel() for p in model(registry.hparams(name), features).parameters())
            for name in (modern, plain)
        ]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads=1"),
        ({"pos": "rotary", "num_heads": 128}, "even"),
        ({"pos": "alibi", **RELATIVE}, "pos=none or"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(HParamsError, match=message):
        Transformer(
            registry.hparams("transformer_tiny").replace(**changes), testing.text_features()
        )
