"""What a trial keeps beside its model and its optimizer survives a stop, or is refused by name."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch

from t2t_torch.errors import TrialError

HEAD = """
import collections
import copy
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader


def make_data_loaders(experiment_config, hparams):
    x = torch.arange(36.0).reshape(12, 3) / 36
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return DataLoader(data, batch_size=2, shuffle=True), DataLoader(data, batch_size=6)
"""

GAN = (
    HEAD
    + """
class Mean:
    def __init__(self, model):
        self.model, self.seen = model, 0
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self):
        self.seen += 1
        for name, p in self.model.named_parameters():
            self.shadow[name].mul_(0.9).add_(p.detach(), alpha=0.1)

    def state_dict(self):
        return {"seen": self.seen, **self.shadow}

    def load_state_dict(self, state):
        self.seen = state.pop("seen")
        self.shadow = state


class Gan(PyTorchTrial):
    def __init__(self, hparams):
        self.rate = hparams.get("rate", 0.05)
        self.critic = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
        self.noise = torch.Generator().manual_seed(1)
        self.arrays, self.old = np.random.default_rng(2), np.random.RandomState(3)
        self.dice = random.Random(4)
        self.steps, self.pool = 0, collections.deque(maxlen=3)
        self.history = []

    def build_model(self):
        return nn.Linear(3, 1)

    def optimizer(self, model):
        self.model = model
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=self.rate)
        self.decay = torch.optim.lr_scheduler.StepLR(self.critic_optimizer, 2, gamma=0.5)
        self.mean, self.copy = Mean(model), copy.deepcopy(model)
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def losses(self, predictions, labels):
        if not torch.is_grad_enabled():
            return (predictions - labels).abs().mean()
        self.steps += 1
        moved = predictions.detach() + torch.randn(2, 1, generator=self.noise)
        moved = moved * self.arrays.random() + self.old.rand() + self.dice.random()
        self.pool.append(moved)
        self.history.append((self.steps, float(moved.mean())))
        if self.steps % 2:  # every other gradient waits for the next step
            self.critic_optimizer.zero_grad()
        loss = (self.critic(torch.cat(list(self.pool))) ** 2).mean() - self.critic(labels).mean()
        loss.backward()
        if self.steps % 2 == 0:
            self.critic_optimizer.step()
            self.decay.step()
        self.mean.update()
        for kept, new in zip(self.copy.parameters(), self.model.parameters()):
            kept.data.lerp_(new.data, 0.3)
        return (predictions - labels).pow(2).mean() + 0.1 * self.critic(predictions).mean()

    def validation_metrics(self, predictions, labels, losses):
        return {"error": losses, "critic": sum(p.abs().sum() for p in self.critic.parameters())}
"""
)


def weights(*modules):
    return [p.detach().clone() for module in modules for p in module.parameters()]


def kept_of(estimator):
    """All that the trial of GAN keeps."""
    trial = estimator.task.trial
    slots = trial.critic_optimizer.state_dict()
    return {
        "weights": weights(estimator.model, trial.critic, trial.copy),
        "slots": [list(v.values()) for v in slots["state"].values()],
        "rate": [group["lr"] for group in slots["param_groups"]],
        "decay": trial.decay.last_epoch,
        "mean": [*trial.mean.shadow.values(), trial.mean.seen],
        "pool": list(trial.pool),
        "history": trial.history,
        "draws": [
            torch.rand(2, generator=trial.noise),
            trial.arrays.random(),
            trial.old.rand(),
            trial.dice.random(),
        ],
    }


def assert_same(one, other):
    flat_one, flat_other = (torch.utils._pytree.tree_leaves(value) for value in (one, other))
    assert len(flat_one) == len(flat_other)
    for left, right in zip(flat_one, flat_other, strict=True):
        assert torch.equal(torch.as_tensor(left), torch.as_tensor(right)), (left, right)


def test_a_gan_that_is_stopped_goes_on_to_the_bit(made, write):
    """The critic, its optimizer and schedule, running means, a pool, counters and generators."""
    file = write(GAN)
    whole = made(file, name="whole", config={})
    whole.train(8)
    parts = None
    for until in (3, 4, 8):  # the first stop is between a gradient and its step
        parts = made(file, name="parts", config={})
        parts.train(until)
        parts.close()
    assert type(parts.task.trial.pool).__name__ == "deque"
    assert parts.task.trial.pool.maxlen == 3
    assert parts.task.trial.mean.model is parts.model
    assert_same(kept_of(parts), kept_of(whole))


def test_what_a_trial_wraps_beside_its_optimizer_goes_on_and_its_reducers_are_its_own(made, write):
    """A trial with an optimizer that the trainer steps, and Determined's context."""
    code = """
    class Pair(PyTorchTrial):
        def __init__(self, context):
            self.critic = nn.Linear(3, 1)
            adam = torch.optim.Adam(self.critic.parameters())
            self.other = context.wrap_optimizer(adam)
            self.empty = context.wrap_reducer(lambda values: 1 / len(values), name="empty")

        def build_model(self, hparams):
            return nn.Linear(3, 1)

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        def train_batch(self, batch, model, epoch_idx, batch_idx):
            inputs, labels = batch
            self.critic(inputs).pow(2).mean().backward()
            self.other.step()
            self.other.zero_grad()
            return {"loss": (model(inputs) - labels).pow(2).mean()}

        def evaluate_batch(self, batch, model):
            return {"error": float(self.critic.weight.detach().sum())}
    """
    head = HEAD.replace("pedl.frameworks.pytorch.data", "determined.pytorch")
    head = head.replace("pedl.frameworks.pytorch", "determined.pytorch")
    file = write(head + textwrap.dedent(code))
    whole = made(file, name="whole", config={})
    whole.train(8)
    for until in (3, 8):
        parts = made(file, name="parts", config={})
        parts.train(until)
        parts.close()
    pairs = [(one.task.trial.critic, one.task.trial.other) for one in (whole, parts)]
    assert_same(*(weights(critic) for critic, _ in pairs))
    assert_same(*([list(s.values()) for s in other.state.values()] for _, other in pairs))


def test_an_evaluation_has_what_the_trial_kept(made, write):
    file = write(GAN)
    trained = made(file, config={})
    trained.train(4)
    trained.close()
    alone = made(file, config={})
    alone.restore_newest()
    assert alone.evaluate()["critic"] == pytest.approx(
        sum(p.abs().sum().item() for p in trained.task.trial.critic.parameters())
    )


def test_what_has_not_changed_follows_the_configuration(made, write):
    """A rate that the trial reads from its hyperparameters is that of the command."""
    file = write(GAN)
    first = made(file, config={})
    first.train(2)
    first.close()
    again = made(file, config={}, hparams={"rate": 0.5})
    again.train(3)
    assert again.task.trial.rate == 0.5


SMALL = (
    HEAD
    + """
class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.noise = nn.Linear(3, 1), {noise}

    def forward(self, x):
        return self.line(x)


class Small(PyTorchTrial):
    def build_model(self):
        return Kept()

    def optimizer(self, model):
        {optimizer}
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def losses(self, predictions, labels):
        {losses}
        return (predictions - labels).pow(2).mean()

    def validation_metrics(self, predictions, labels, losses):
        return {{"error": losses}}
"""
)


def small(noise="None", optimizer="self.own = model", losses="pass"):
    return SMALL.format(noise=noise, optimizer=optimizer, losses=losses)


def test_a_generator_of_the_model_goes_on(made, write):
    code = small(
        "torch.Generator().manual_seed(7)",
        losses="predictions = predictions "
        "+ torch.rand(len(predictions), 1, generator=self.own.noise)",
    )
    whole = made(write(code), name="whole", config={})
    whole.train(5)
    for until in (2, 5):
        parts = made(write(code), name="parts", config={})
        parts.train(until)
        parts.close()
    assert_same(weights(parts.model), weights(whole.model))


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ("self.late = torch.Generator()", r"self\.late \(Generator, created during training\)"),
        ("self.late = [nn.Linear(3, 1)]", r"self\.late\[0\] \(Linear, created during training\)"),
        ("self.own.phase = torch.float16", r"build_model\(\)\.phase \(dtype\)"),
        ("self.meter.sum += 1", r"self\.meter \(Meter\)"),
    ],
)
def test_what_cannot_be_stored_is_refused_after_the_first_step_or_transient(
    made, write, losses, said
):
    code = small(optimizer="self.own, self.meter = model, Meter()", losses=losses).replace(
        "class Kept", "class Meter:\n    sum = 0\n\n\nclass Kept"
    )
    with pytest.raises(TrialError, match=rf"{said} changed after build_model"):
        made(write(code), config={}).train(5)
    transient = '    transient = ("late", "phase", "meter")\n\n    def build_model'
    file = write(code.replace("    def build_model", transient), "other.py")
    for until in (2, 3):
        estimator = made(file, name="other", config={})
        estimator.train(until)
        estimator.close()


def test_an_iterator_on_the_trial_is_refused_by_name(made, write):
    code = small(optimizer="self.own, self.words = model, iter([1, 2, 3])")
    with pytest.raises(TrialError, match=r"self\.words \(list_iterator"):
        made(write(code), config={}).begin()


def test_a_trial_that_has_changed_its_second_optimizer_is_refused(made, write):
    code = small(optimizer="self.own, self.{} = model, torch.optim.{}(model.parameters(), lr=1)")
    first = made(write(code.replace("{}", "second", 1).replace("{}", "SGD")), config={})
    first.train(2)
    first.close()
    again = write(code.replace("{}", "other", 1).replace("{}", "SGD"))
    with pytest.raises(TrialError, match=r"self\.second \(optimizer\), and the trial does not"):
        made(again, config={}).begin()


def test_a_small_trial_keeps_nothing_beside_its_weights(made, write):
    estimator = made(write(small()), config={})
    estimator.train(2)
    assert not (estimator.directory.path / "ckpt-2" / "task.safetensors").exists()
    assert "of_trial" not in estimator.state.task


def test_other_kinds_of_state_are_put_back(made, write):
    """Arrays, sets of settings, tuples as keys, numbers of numpy."""
    optimizer = (
        "self.own, self.sums, self.seen = model, np.zeros((2, 2)), {}; self.best = np.float32(1)"
    )
    losses = (
        "self.sums += 1; self.best = self.best * np.float32(0.5); "
        "self.seen[(len(self.seen), 'a')] = [torch.ones(1), None]"
    )
    for until in (2, 3):
        estimator = made(write(small(optimizer=optimizer, losses=losses)), config={})
        estimator.train(until)
        estimator.close()
    trial = estimator.task.trial
    assert np.array_equal(trial.sums, np.full((2, 2), 3.0))
    assert trial.best == 0.125
    assert list(trial.seen) == [(0, "a"), (1, "a"), (2, "a")]
    assert trial.seen[0, "a"] == [torch.ones(1), None]


def test_an_evaluation_has_nothing_of_the_checkpoint_before_it(made, write):
    """An attribute that is as it was made again is not in a checkpoint."""
    code = small(
        optimizer="self.own, self.warm, self.seen, self.steps = model, True, [], 0",
        losses="self.steps += torch.is_grad_enabled(); "
        "self.warm = self.steps != 2; self.seen[:] = [1] * (self.steps == 2)",
    ).replace('"error": losses', '"error": losses, "warm": self.warm, "seen": len(self.seen)')
    trained = made(write(code), config={})
    for step in (1, 2, 3):
        trained.train(step)
        trained.save(must_succeed=True)
    trained.close()
    alone = made(write(code), config={})
    for step, expected in ((2, (0, 1)), (3, (1, 0)), (2, (0, 1)), (1, (1, 0))):
        alone.restore(alone.checkpoints.at(step))
        trial = alone.task.trial
        assert (trial.warm, len(trial.seen), trial.steps) == (*expected, step)
