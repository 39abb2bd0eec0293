"""What stands before and after a sublayer."""

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.layers.transformer_layer import Postprocess, Preprocess

HPARAMS = registry.hparams("transformer_test")


def norm(x):
    """Layer norm by its definition."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + HPARAMS.norm_epsilon).sqrt()


def test_pre_norm_normalizes_before_and_adds_after():
    x, y = torch.randn(2, 2, 3, 16)
    torch.testing.assert_close(Preprocess(HPARAMS).eval()(x), norm(x))
    torch.testing.assert_close(Postprocess(HPARAMS).eval()(x, y), x + y)


def test_post_norm_adds_and_then_normalizes():
    hparams = HPARAMS.replace(layer_preprocess_sequence="none", layer_postprocess_sequence="dan")
    x, y = torch.randn(2, 2, 3, 16)
    assert Preprocess(hparams).eval()(x) is x
    torch.testing.assert_close(Postprocess(hparams).eval()(x, y), norm(x + y))


@pytest.mark.parametrize("sequence", ["x", "nn", "dz"])
def test_unknown_letters_are_refused(sequence):
    with pytest.raises(HParamsError):
        Postprocess(HPARAMS.replace(layer_postprocess_sequence=sequence))
