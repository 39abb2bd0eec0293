"""What is trained, from when on, at which part of the rate."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.optim.parameter_groups import parameter_groups


class Model(nn.Module):
    """Two stacks of layers, a table that enters and leaves, a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.modalities = nn.ModuleDict(
            {"bottom": nn.Linear(2, 2, bias=False), "top": nn.Linear(2, 2, bias=False)}
        )
        self.modalities["top"].weight = self.modalities["bottom"].weight
        self.encoder = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
        self.decoder = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])
        self.norm = nn.LayerNorm(2)


def groups(hparams="", model=None):
    """(lr_scale, unfreeze_step) by the parameters' names."""
    found = parameter_groups(model or Model(), HParams().parse(hparams))
    return {
        name: (group["lr_scale"], group["unfreeze_step"])
        for group in found
        for name, _ in group["params"]
    }


def test_without_settings_there_is_one_group_of_all_in_the_models_order():
    model = Model()
    (group,) = parameter_groups(model, HParams())
    assert group["params"] == list(model.named_parameters())
    assert (group["lr_scale"], group["unfreeze_step"]) == (1.0, 0)


def test_what_is_frozen_asks_for_no_gradient_and_is_in_no_group():
    model = Model()
    found = groups(r"freeze=[^encoder\.[01]\.,norm]", model)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"encoder.0.weight", "encoder.1.weight", "norm.weight", "norm.bias"}
    assert frozen.isdisjoint(found)
    assert len(found) == 4


def test_a_shared_weight_is_found_under_any_of_its_names():
    model = Model()
    groups("freeze=[top]", model)
    assert not model.modalities["bottom"].weight.requires_grad


def test_the_first_pattern_that_is_found_gives_the_scale():
    found = groups("learning_rate_scales=[encoder.0=0.1,encoder=0.5,norm=0]")
    assert found["encoder.0.weight"] == (0.1, 0)
    assert found["encoder.1.weight"] == (0.5, 0)
    assert found["norm.bias"] == (0.0, 0)
    assert found["decoder.0.weight"] == (1.0, 0)


def test_the_first_pattern_that_is_found_says_when_weights_unfreeze():
    found = groups("unfreeze_schedule=[encoder.2=5,encoder=10]")
    assert found["encoder.2.weight"] == (1.0, 5)
    assert found["encoder.0.weight"] == (1.0, 10)
    assert found["norm.bias"] == (1.0, 0)


def test_each_layer_learns_slower_than_the_one_above_it():
    found = groups("learning_rate_layer_decay=0.5,learning_rate_scales=[encoder.0=10]")
    scales = {name: scale for name, (scale, _) in found.items()}
    assert scales == {
        "encoder.2.weight": 1.0,
        "encoder.1.weight": 0.5,
        "encoder.0.weight": 2.5,
        "decoder.1.weight": 1.0,
        "decoder.0.weight": 0.5,
        "modalities.bottom.weight": 0.125,  # below the longest stack
        "norm.weight": 1.0,
        "norm.bias": 1.0,
    }


def test_torch_takes_the_groups_and_keeps_what_is_beside():
    found = parameter_groups(Model(), HParams().parse("unfreeze_schedule=[encoder=5]"))
    optimizer = torch.optim.AdamW(found)
    assert [group["unfreeze_step"] for group in optimizer.param_groups] == [0, 5]
    assert optimizer.param_groups[1]["param_names"] == [f"encoder.{i}.weight" for i in range(3)]


@pytest.mark.parametrize(
    "hparams, told",
    [
        ("freeze=[encodr]", r"freeze=encodr: no weight .* 'encodr' in its name. Near: encoder"),
        ("freeze=[zzz]", r"Near: decoder, encoder, modalities, norm"),
        ("freeze=[(]", r"'\(' is no regular expression"),
        ("freeze=[.]", r"leaves no weight to train"),
        ("learning_rate_scales=[decoder.7=0.5]", r"learning_rate_scales: decoder.7=0.5: no weight"),
        ("learning_rate_scales=[decoder]", r"'decoder' should be pattern=factor"),
        ("learning_rate_scales=[decoder=-1]", r"'decoder=-1' should be pattern=factor"),
        ("learning_rate_scales=[decoder=nan]", r"should be pattern=factor"),
        ("unfreeze_schedule=[decoder=1.5]", r"'decoder=1.5' should be pattern=step"),
        ("unfreeze_schedule=[.=3]", r"leave nothing to train at the first step"),
    ],
)
def test_what_cannot_be_meant_is_refused(hparams, told):
    with pytest.raises(HParamsError, match=told):
        groups(hparams)


def test_a_model_without_layers_has_no_rates_by_layer():
    with pytest.raises(HParamsError, match=r"no numbered layers"):
        groups("learning_rate_layer_decay=0.5", nn.Linear(2, 2))
    with pytest.raises(HParamsError, match=r"unfreeze_every=3: the model has no numbered layers"):
        groups("unfreeze_every=3", nn.Linear(2, 2))


def test_a_pattern_after_an_exclamation_mark_is_trained():
    assert groups(r"freeze=[!^encoder\.2]").keys() == {"encoder.2.weight"}
    assert groups(r"freeze=[encoder,norm,!encoder.2]").keys() == {
        "encoder.2.weight",
        "decoder.0.weight",
        "decoder.1.weight",
        "modalities.bottom.weight",
    }
    with pytest.raises(HParamsError, match=r"freeze=!encodr: no weight .* 'encodr'"):
        groups("freeze=[!encodr]")


def test_layers_unfreeze_from_the_top_down_embeddings_last():
    """Howard and Ruder 2018; a step that is given for a weight counts before its layer's."""
    found = groups("unfreeze_every=10,unfreeze_schedule=[decoder.0=3]")
    assert {name: step for name, (_, step) in found.items()} == {
        "norm.weight": 0,
        "norm.bias": 0,
        "encoder.2.weight": 10,
        "encoder.1.weight": 20,
        "encoder.0.weight": 30,
        "decoder.1.weight": 10,
        "decoder.0.weight": 3,
        "modalities.bottom.weight": 40,
    }
    assert {scale for scale, _ in found.values()} == {1.0}


def test_a_norm_of_embeddings_is_as_deep_as_they_are_and_one_above_the_layers_is_not():
    body = nn.Module()
    body.embeddings = nn.Module()
    body.embeddings.words, body.embeddings.norm = nn.Embedding(3, 2), nn.LayerNorm(2)
    body.layer = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
    body.positions, body.last_norm = nn.Embedding(3, 2), nn.LayerNorm(2)
    found = {name: step for name, (_, step) in groups("unfreeze_every=1", body).items()}
    assert found["layer.1.bias"] == 1
    assert found["layer.0.bias"] == 2
    assert found["embeddings.words.weight"] == found["embeddings.norm.bias"] == 3
    assert found["positions.weight"] == 3
    assert found["last_norm.weight"] == 0
