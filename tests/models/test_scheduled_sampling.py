"""Scheduled sampling: what a model reads in training, and how the share of guesses grows."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.features import Features, Text
from t2t_torch.loss import TargetOutputs
from t2t_torch.modality import Hidden
from t2t_torch.objectives.batches import ScheduledSampling, warmup_factor
from t2t_torch.objectives.objective import Objective
from t2t_torch.text.encoder import IntegerEncoder

SET = registry.hparams("transformer_test").replace(
    layer_prepostprocess_dropout=0.0, attention_dropout=0.0, relu_dropout=0.0, label_smoothing=0.0
)
ALL = {
    "scheduled_sampling_prob": 1.0,
    "scheduled_sampling_gold_mixin_prob": 0.0,
    "scheduled_sampling_warmup_steps": 0,
}


def sampling(**hparams):
    named = {f"scheduled_sampling_{name}": value for name, value in hparams.items()}
    return ScheduledSampling(SET.replace(scheduled_sampling_prob=1.0).replace(**named))


def transformer(**hparams):
    torch.manual_seed(0)
    return registry.model("transformer")(SET.replace(**hparams), testing.text_features()).train()


def objective(**hparams):
    return Objective(transformer(**hparams))


@pytest.mark.parametrize("schedule", ["exp", "linear", "sigmoid"])
def test_a_warm_up_goes_from_a_thousandth_to_one_and_never_back(schedule):
    values = [warmup_factor(schedule, step, 200) for step in range(260)]
    assert values[0] == pytest.approx(0.001)
    assert values[200:] == [1.0] * 60
    assert values == sorted(values)
    assert values[199] == pytest.approx(1.0, abs=0.04)


def test_warm_ups_are_tensor2tensors():
    """layers/common_layers.py, with min_value=0.001, by hand for step 30 of 100."""
    assert warmup_factor("exp", 30, 100) == pytest.approx(math.exp(math.log(0.001) / 100) ** 70)
    assert warmup_factor("linear", 30, 100) == pytest.approx(0.3 * 0.999 + 0.001)
    low, high = (math.log(y / (1 - y)) for y in (0.001, 0.999))
    y = 1 / (1 + math.exp(-(low + (high - low) * 0.3)))
    y = (y - 0.001) / (0.999 - 0.001) * (1.0 - 0.001) + 0.001
    assert warmup_factor("sigmoid", 30, 100) == pytest.approx(y)
    assert warmup_factor("sigmoid", 50, 100) == pytest.approx(0.5 * 0.999 + 0.001)
    assert warmup_factor("exp", 0, 0) == 1.0


def test_the_share_is_what_is_not_gold_by_the_warm_up():
    one = sampling(prob=0.5, gold_mixin_prob=0.2, warmup_steps=100, warmup_schedule="linear")
    one.at_step(30)
    assert one.share.item() == pytest.approx(0.5 * 0.8 * (0.3 * 0.999 + 0.001))
    one.at_step(1000)
    assert one.share.item() == pytest.approx(0.4)


def test_such_a_share_of_the_targets_is_replaced_and_no_padding():
    torch.manual_seed(0)
    one = sampling(gold_mixin_prob=0.7, warmup_steps=0)
    gold = torch.full((200, 100), 5)
    gold[:, 80:] = 0
    mixed = one.mix(gold, gold, torch.full_like(gold, 9), 0)
    assert not mixed[:, 80:].any()
    assert (mixed[:, :80] == 9).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert set(mixed[:, :80].unique().tolist()) == {5, 9}


def test_a_later_pass_keeps_the_first_targets_that_the_one_before_it_read():
    one = sampling(gold_mixin_prob=0.0, warmup_steps=0)
    gold, read, guesses = (torch.full((2, 5), i) for i in (5, 6, 7))
    assert one.mix(gold, read, guesses, 2).tolist() == [[6, 6, 7, 7, 7]] * 2


def test_guesses_are_drawn_by_their_probability_and_are_never_padding():
    torch.manual_seed(0)
    model = transformer()
    modality = model.modalities["targets"]
    with torch.no_grad():
        states = torch.randn(1, 1, SET.hidden_size) * 2
        expected = modality.top(states)[0, 0, 1:].softmax(-1)
        drawn = modality.sample(Hidden(states.expand(40, 500, -1)))
    assert drawn.shape == (40, 500)
    counts = torch.bincount(drawn.flatten(), minlength=len(expected) + 1)
    assert counts[0] == 0
    torch.testing.assert_close(counts[1:] / 20000, expected, atol=0.015, rtol=0)


def bodies(model, monkeypatch):
    """What each pass of the body reads of the targets."""
    seen = []
    body = type(model).body

    def watched(self, features):
        seen.append(features["targets"].embedded)
        return body(self, features)

    monkeypatch.setattr(type(model), "body", watched)
    return seen


@pytest.mark.parametrize("passes", [1, 3])
def test_the_loss_is_of_the_gold_targets_and_the_body_reads_guesses(passes, monkeypatch):
    whole = objective(**ALL, scheduled_sampling_num_passes=passes)
    model = whole.model
    plain = transformer()
    batch = testing.random_batch(model.features)
    guesses = torch.where(batch["targets"] != 0, 7, 3)
    monkeypatch.setattr(
        type(model.modalities["targets"]), "sample", lambda self, hidden, top: guesses
    )
    seen = bodies(model, monkeypatch)
    found = whole(batch).losses["targets"]
    assert len(seen) == passes + 1
    torch.testing.assert_close(seen[0], plain.bottom(batch)["targets"].embedded)
    read = torch.where(batch["targets"] != 0, 7, 0)
    torch.testing.assert_close(seen[-1], plain.bottom({"targets": read})["targets"].embedded)
    hidden = plain.body(plain.bottom({**batch, "targets": read}))["targets"].states
    expected = plain.modalities["targets"].training_loss(
        TargetOutputs([Hidden(hidden)], batch["targets"])
    )
    torch.testing.assert_close(found, expected)


def test_only_the_last_pass_is_learnt_from(monkeypatch):
    whole = objective(**ALL)
    seen = bodies(whole.model, monkeypatch)
    whole(testing.random_batch(whole.model.features)).losses["targets"].sum.backward()
    assert [one.requires_grad for one in seen] == [False, True]


def test_at_the_beginning_of_the_warm_up_nearly_all_is_gold(monkeypatch):
    whole = objective(**{**ALL, "scheduled_sampling_warmup_steps": 1000})
    batch = testing.random_batch(whole.model.features)
    seen = bodies(whole.model, monkeypatch)
    torch.manual_seed(1)
    whole.at_step(0)
    whole(batch)
    assert (seen[0] != seen[1]).any(-1).float().mean() < 0.05
    whole.at_step(1000)
    whole(batch)
    assert (seen[2] != seen[3]).any(-1).float().mean() > 0.4


def test_it_is_for_training_and_nothing_is_saved_of_it(monkeypatch):
    model = transformer(**ALL)
    assert model.state_dict().keys() == transformer().state_dict().keys()
    seen = bodies(model, monkeypatch)
    Objective(model).eval()(testing.random_batch(model.features))
    assert len(seen) == 1


def test_with_no_share_there_is_no_pass_more(monkeypatch):
    model = transformer(**{**ALL, "scheduled_sampling_gold_mixin_prob": 1.0})
    seen = bodies(model, monkeypatch)
    Objective(model)(testing.random_batch(model.features))
    assert len(seen) == 1


def test_the_same_seed_guesses_the_same():
    model = transformer(**ALL)
    batch = testing.random_batch(model.features)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(Objective(model)(batch).losses["targets"].sum.item())
    assert losses[0] == losses[1] != losses[2]


def test_a_language_model_samples_too():
    text = Text(IntegerEncoder(17))
    model = registry.model("transformer")(
        SET.replace(**ALL), Features({}, {"targets": text})
    ).train()
    batch = {"targets": torch.tensor([[5, 6, 7, 1], [3, 1, 0, 0]])}
    loss = Objective(model)(batch).losses["targets"]
    loss.sum.backward()
    assert loss.weight == 6
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_under_autocast_every_weight_still_learns():
    """Autocast may keep the rounded weights of a pass without gradients for the one with some."""
    model = transformer(**ALL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = Objective(model)(testing.random_batch(model.features)).losses["targets"]
    loss.sum.backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
