"""Muon takes the matrices of the layers, adam_w the rest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams

HPARAMS = HParams().parse("optimizer=muon,weight_decay=0.0")


def pairs():
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "modalities.targets.bottom.weight": (7, 4),
        "encoder.0.inner.weight": (8, 4),
        "encoder.0.inner.bias": (8,),
        "convolution.weight": (3, 4, 2),
    }
    return [
        (name, nn.Parameter(torch.randn(shape, generator=generator)))
        for name, shape in shapes.items()
    ]


def step(named, optimizer):
    generator = torch.Generator().manual_seed(2)
    for _, parameter in named:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    for group in optimizer.param_groups:
        group["lr"], group["updates"] = 0.1, 0
    optimizer.step()


def test_only_the_matrix_of_a_layer_is_orthogonal_and_the_rest_is_adams():
    named, alone = pairs(), pairs()
    step(named, registry.optimizer("muon")(named, HPARAMS))
    step(alone, registry.optimizer("adam_w")(alone, HPARAMS))
    for (name, ours), (_, adams), (_, before) in zip(named, alone, pairs(), strict=True):
        if name != "encoder.0.inner.weight":
            assert torch.equal(ours, adams), name
            continue
        moved = (ours - before).detach()
        # Scaled to 0.2 of the root of the longer side, Liu et al. 2025; Newton and Schulz's five
        # rounds leave singular values between 0.7 and 1.2.
        values = torch.linalg.svdvals(moved / (0.1 * 0.2 * 8**0.5))
        assert ((values > 0.6) & (values < 1.3)).all(), values


def test_a_pattern_moves_a_matrix_to_adam_w():
    hparams = HPARAMS.parse("optimizer_muon_excludes=[modalities,encoder]")
    named = [*pairs(), ("decoder.0.inner.weight", nn.Parameter(torch.ones(2, 2)))]
    optimizer = registry.optimizer("muon")(named, hparams)
    step(named, optimizer)
    slots = {name: set(optimizer.state[parameter]) for name, parameter in named}
    assert slots["encoder.0.inner.weight"] == {"step", "exp_avg", "exp_avg_sq"}
    assert slots["decoder.0.inner.weight"] == {"momentum_buffer"}


def test_without_names_or_matrices_it_is_refused():
    with pytest.raises(HParamsError, match=r"named_parameters"):
        registry.optimizer("muon")([p for _, p in pairs()], HPARAMS)
    with pytest.raises(HParamsError, match=r"Use optimizer=adam_w"):
        registry.optimizer("muon")(pairs()[:1], HPARAMS)
