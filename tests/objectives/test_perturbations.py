"""Perturbed token embeddings: R3F, FGM and PGD."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.distributed.network import CheckpointedLayer, layers_of
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Image, Tags, Text
from t2t_torch.layers.cross_entropy import kl_divergence
from t2t_torch.objectives.objective import Objective, check_objective
from t2t_torch.objectives.perturbations import TokenEmbeddings, noise

FGM = {"adversarial_steps": 1, "adversarial_epsilon": 0.05}
PGD = {"adversarial_steps": 3, "adversarial_epsilon": 0.05, "adversarial_step_size": 0.04}


def model_of(kind, **hparams):
    """A model without dropout, with a target of a kind, and a batch."""
    name = "transformer" if kind is Text else "transformer_encoder"
    chosen = "transformer_test" if kind is Text else "transformer_encoder_tiny"
    known = registry.hparams(chosen)
    still = {n: 0.0 for n in type(known).model_fields if n.endswith("dropout")}
    known = known.replace(**{"label_smoothing": 0.0, **still, **hparams})
    kinds = testing.features_for(registry.model(name))
    features = next(f for f in kinds if type(f.targets["targets"]) is kind)
    torch.manual_seed(0)
    model = registry.model(name)(known, features)
    torch.manual_seed(1)
    return model, testing.random_batch(features)


def loss_of(kind, **hparams):
    model, batch = model_of(kind, **hparams)
    torch.manual_seed(2)
    return Objective(model).train()(batch).losses["targets"]


@pytest.mark.parametrize("kind", [Text, ClassLabel, Tags])
def test_r3f_adds_the_symmetric_divergence_of_a_noisy_pass(kind):
    plain = loss_of(kind)
    found = loss_of(kind, r3f_weight=3.0, r3f_epsilon=0.1)
    model, batch = model_of(kind, r3f_weight=3.0, r3f_epsilon=0.1)
    model.train()
    torch.manual_seed(2)
    clean = model.logits(batch)["targets"]
    with TokenEmbeddings(model, "").moved(lambda *call: noise(model.hparams, *call)):
        noisy = model.logits(batch)["targets"]
    both = kl_divergence(clean, noisy) + kl_divergence(noisy, clean)
    weights = model.example_weights("targets", batch)
    expected = (
        3.0 * (both * model.modality("targets").item_weights(batch["targets"], weights)).sum()
    )
    assert expected > 1e-3
    torch.testing.assert_close(found.sum - plain.sum, expected, rtol=1e-3, atol=1e-4)
    assert found.weight == plain.weight


def test_noise_is_of_the_distribution_and_size_that_are_set():
    values = torch.zeros(100_000)
    for kind, deviation in (("normal", 0.2), ("uniform", 0.2 / math.sqrt(3))):
        hparams = registry.hparams("transformer_test").replace(r3f_noise=kind, r3f_epsilon=0.2)
        made = noise(hparams, 0, values)
        assert made.std().item() == pytest.approx(deviation, rel=0.02)
        assert (made.abs().max() > 0.2) == (kind == "normal")


@pytest.mark.parametrize("kind", [Text, ClassLabel, Tags])
def test_fgm_goes_epsilon_along_each_examples_gradient(kind):
    model, batch = model_of(kind)
    model.train()
    moves = []

    def watch(call, output):
        moves.append(torch.zeros_like(output, requires_grad=True))
        return moves[-1]

    embeddings = TokenEmbeddings(model, "")
    with embeddings.moved(watch):
        clean = model(batch).losses["targets"].sum
    gradients = torch.autograd.grad(clean, moves)
    steps = [0.05 * g / g.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None] for g in gradients]
    with embeddings.moved(lambda call, output: steps[call]):
        moved = model(batch).losses["targets"].sum
    assert moved > clean
    found = loss_of(kind, **FGM, adversarial_weight=0.5)
    torch.testing.assert_close(found.sum, clean + 0.5 * moved)


def test_several_steps_find_more_than_one_and_stay_in_the_ball(monkeypatch):
    plain, one, several = (loss_of(ClassLabel, **more).sum for more in ({}, FGM, PGD))
    assert several - plain >= one - plain > plain * 0.99
    hooks = []
    original = TokenEmbeddings.moved

    def moved(self, move):
        def noted(call, output):
            hooks.append(move(call, output))
            return hooks[-1]

        return original(self, noted)

    monkeypatch.setattr(TokenEmbeddings, "moved", moved)
    loss_of(ClassLabel, **PGD)
    norms = [one.detach().flatten(1).norm(dim=1) for one in hooks]
    assert len(norms) == 4  # the clean pass, one for each further step, and that of the loss
    assert norms[0].max() == 0
    torch.testing.assert_close(norms[1], torch.full_like(norms[1], 0.04))
    assert norms[3].max() <= 0.05 + 1e-6


@pytest.mark.parametrize(
    "more",
    [
        {"activation_dtype": "bfloat16"},
        {"label_smoothing": 0.1},
        {"r_drop_alpha": 1.0, "layer_prepostprocess_dropout": 0.1},
        {"r3f_weight": 1.0, "confidence_penalty": 0.1},
    ],
)
@pytest.mark.parametrize("kind", [Text, ClassLabel])
def test_it_goes_with_other_terms_and_has_gradients(kind, more):
    model, batch = model_of(kind, **PGD, **more)
    objective = Objective(model).train()
    half = more.get("activation_dtype") == "bfloat16"
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        loss = objective(batch).losses["targets"].sum
    assert not [p for p in model.parameters() if p.grad is not None]
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_frozen_embeddings_are_moved_too():
    model, batch = model_of(ClassLabel, **FGM)
    plain = loss_of(ClassLabel).sum
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("modalities.inputs" not in name)
    assert Objective(model).train()(batch).losses["targets"].sum > 2 * plain


def test_padding_is_not_moved():
    model, batch = model_of(ClassLabel)
    batch["inputs"][:, -1] = 0
    with TokenEmbeddings(model, "").moved(lambda call, output: torch.ones_like(output)):
        embedded = model.embed("inputs", batch["inputs"])
    assert not embedded[:, -1].any()
    torch.testing.assert_close(embedded[:, 0], model.embed("inputs", batch["inputs"])[:, 0] + 1)


def test_evaluation_is_the_models():
    model, batch = model_of(ClassLabel, **PGD, r3f_weight=1.0)
    plain, _ = model_of(ClassLabel)
    found, expected = (Objective(one).eval()(batch).losses["targets"] for one in (model, plain))
    assert torch.equal(found.sum, expected.sum)


@pytest.mark.parametrize("name", ["compile", "shard_weights"])
def test_what_does_not_go_with_a_gradient_in_a_pass_is_refused(name):
    model, _ = model_of(ClassLabel)
    with pytest.raises(HParamsError, match=f"{name}=True: adversarial_steps=1"):
        check_objective(model.hparams.replace(**FGM, **{name: True}), model.features)


@pytest.mark.parametrize("setting", [{"adversarial_steps": 1}, {"r3f_weight": 1.0}])
def test_a_model_without_embeddings_of_tokens_is_refused(setting):
    kinds = testing.features_for(registry.model("shake_shake"))
    features = next(f for f in kinds if Image in map(type, f.inputs.values()))
    hparams = registry.hparams("shakeshake_small").replace(**setting)
    with pytest.raises(HParamsError, match=f"{next(iter(setting))}.*embeddings of tokens"):
        Objective(registry.model("shake_shake")(hparams, features))


def test_activation_checkpointing_changes_nothing():
    found = []
    for checkpointing in (False, True):
        model, batch = model_of(ClassLabel, **PGD)
        for layer in layers_of(model) if checkpointing else ():
            layer.forward = CheckpointedLayer(layer)
        loss = Objective(model).train()(batch).losses["targets"].sum
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    torch.testing.assert_close(found[1], found[0])
