"""The Transformer as a language model: that of `transformer` without inputs, also in streams."""

from __future__ import annotations

import torch

from t2t_torch import registry
from t2t_torch.models.transformer import Transformer
from t2t_torch.models.transformer_lm import TransformerLm
from t2t_torch.testing import text_features

FEATURES = text_features(has_inputs=False)
HPARAMS = registry.hparams("transformer_lm_tiny").replace(hidden_size=16, filter_size=32)
IDS = torch.randint(1, 19, (3, 12), generator=torch.Generator().manual_seed(0))


def make() -> TransformerLm:
    torch.manual_seed(0)
    return TransformerLm(HPARAMS, FEATURES).eval()


@torch.no_grad()
def test_it_has_the_weights_and_the_logits_of_a_transformer_without_inputs():
    model, other = make(), Transformer(HPARAMS, FEATURES).eval()
    other.load_state_dict(model.state_dict())
    batch = {"targets": IDS}
    assert torch.equal(model(batch).logits["targets"], other(batch).logits["targets"])


@torch.no_grad()
def test_a_block_of_a_stream_is_a_text_that_begins_with_the_token_before_it():
    model = make()
    numbers = torch.arange(3)
    batch = {
        "targets": IDS[:, 4:],
        "targets_before": IDS[:, 3],
        "targets_stream": numbers,
        "targets_block": torch.ones(3, dtype=torch.int64),
    }
    found = model(batch).logits["targets"]
    table = model.modalities["targets"]
    x = table.bottom(IDS[:, 3:-1])  # the first is read where a text has a zero vector
    x = model.positions(x)
    for layer in model.decoder:
        x = layer(x, None, None, None)
    torch.testing.assert_close(found, table.top(model.decoder_output(x)))


@torch.no_grad()
def test_the_beginning_of_a_stream_is_that_of_a_text():
    model = make()
    nothing = torch.zeros(3, dtype=torch.int64)
    batch = {"targets": IDS, "targets_before": nothing, "targets_block": nothing}
    expected = model({"targets": IDS}).logits["targets"]
    torch.testing.assert_close(model(batch).logits["targets"], expected)
