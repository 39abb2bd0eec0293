"""ELECTRA: replaced tokens are recognized, and the encoder begins other models."""

from __future__ import annotations

import torch

from t2t_torch import registry
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.features.denoising import corrupted
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder

WORDS = Text(TokenEncoder([f"w{i}" for i in range(30)]))
MASKED = corrupted(Features({}, {"targets": WORDS}), "masked")


def electra(**values):
    hparams = registry.hparams("electra_tiny").replace(
        layer_prepostprocess_dropout=0.0, attention_dropout=0.0, relu_dropout=0.0, **values
    )
    torch.manual_seed(0)
    return registry.model("electra")(hparams, MASKED)


def batch_of(rows=16, length=12):
    """Texts in which each word follows the one before it by a step of one."""
    start = torch.randint(0, 30, (rows, 1), generator=torch.Generator().manual_seed(1))
    ids = (start + torch.arange(length)) % 30 + 2
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(2)) < 0.2
    inputs = torch.where(hidden, WORDS.vocab_size, ids)
    inputs[:, -2:] = 0
    targets = torch.where(hidden, ids, 0) * (inputs != 0)
    return {"inputs": inputs, "targets": targets}


def test_the_loss_is_that_of_both_networks():
    batch = batch_of()
    losses = {}
    for weight in (0.0, 1.0, 50.0):
        model = electra(discriminator_weight=weight).train()
        torch.manual_seed(3)
        with torch.no_grad():
            losses[weight] = model(batch).losses["targets"]
    assert len({float(one.weight) for one in losses.values()}) == 1
    assert losses[0.0].weight == (batch["targets"] > 0).sum()
    added = [float(losses[w].sum - losses[0.0].sum) for w in (1.0, 50.0)]
    assert added[0] > 0
    torch.testing.assert_close(
        torch.tensor(added[1]), torch.tensor(50 * added[0]), rtol=1e-3, atol=0
    )


def test_both_networks_learn():
    model, batch = electra(), batch_of()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    model.train()
    first = float(model(batch).loss.detach())
    for _ in range(60):
        loss = model(batch).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(weight.grad is not None for weight in model.parameters())
        optimizer.step()
    assert float(loss.detach()) < 0.6 * first
    empty = {**batch, "targets": torch.zeros_like(batch["targets"])}
    assert float(model(empty).losses["targets"].sum.detach()) == 0.0  # nothing is hidden


def test_a_classifier_has_the_names_of_the_encoder():
    label = ClassLabel(ClassLabelEncoder(["a", "b"]))
    hparams = registry.hparams("electra_tiny", "transformer_encoder")
    classifier = registry.model("transformer_encoder")(
        hparams, Features({"inputs": WORDS}, {"targets": label})
    )
    theirs = electra().state_dict()
    body = {name for name in classifier.state_dict() if not name.startswith("modalities.targets")}
    assert body <= theirs.keys()


def test_evaluation_computes_the_generator_alone():
    model, batch = electra().eval(), batch_of()
    with torch.no_grad():
        output = model(batch)
    assert output.logits["targets"].shape == (*batch["targets"].shape, WORDS.vocab_size + 1)
    assert bool(output.loss.isfinite())
