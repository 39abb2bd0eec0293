"""Learning rates of a run that goes on are those of one that never stopped, whatever moves them."""

from __future__ import annotations

import collections
import enum
import json
import logging

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from t2t_torch.errors import TrialError
from t2t_torch.trial.schedule import Schedule, restore_state, state_of

STEPS = 30


def settings_of(optimizer):
    """The stored settings of an optimizer."""
    return Schedule(optimizer, None, object(), "a trial").state()["settings"]


def restore_settings(optimizer, settings, what):
    """Restores them."""
    Schedule(optimizer, None, object(), what).restore({"settings": settings})


class Warming:
    """A function with a memory, as LambdaLR allows."""

    def __init__(self):
        self.called = 0

    def __call__(self, step):
        self.called += 1
        return 0.9**self.called


class GradualWarmup(lr_scheduler.LRScheduler):
    """As in 2019's repositories: it holds the scheduler that follows it."""

    def __init__(self, optimizer, total, after):
        self.total = total
        self.after_scheduler = after
        super().__init__(optimizer)

    def get_lr(self):
        if self.last_epoch > self.total:
            return self.after_scheduler.get_last_lr()
        return [base * (self.last_epoch + 1) / (self.total + 1) for base in self.base_lrs]

    def step(self):
        super().step()
        if self.last_epoch > self.total:
            self.after_scheduler.step()
            for group, rate in zip(
                self.optimizer.param_groups, self.after_scheduler.get_last_lr(), strict=True
            ):
                group["lr"] = rate


class Pieces(lr_scheduler.LRScheduler):
    """Keeps what JSON has no word for."""

    def __init__(self, optimizer):
        self.rates = np.array([0.1, 0.2, 0.3])
        self.seen = collections.Counter()
        self.by_step = {0: 1.0}
        self.worst = float("inf")
        self.mean = torch.tensor(0.25)
        super().__init__(optimizer)

    def get_lr(self):
        self.rates *= np.float32(0.97)
        self.seen[self.last_epoch % 3] += 1
        self.by_step[self.last_epoch] = float(self.rates[0])
        self.worst = min(self.worst, self.seen[0] / 7)
        self.mean = self.mean * 0.9
        best = self.seen.most_common()[0][1]
        return [float(self.rates[1] + self.worst + self.mean) / best for _ in self.base_lrs]


def chained(optimizer):
    parts = [lr_scheduler.ExponentialLR(optimizer, 0.95), lr_scheduler.StepLR(optimizer, 4)]
    return lr_scheduler.ChainedScheduler(parts)


def sequential(optimizer):
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        lr_scheduler.MultiStepLR(optimizer, [3, 9]),
        lr_scheduler.CosineAnnealingLR(optimizer, 7),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [6, 20])


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, [lambda n: 0.95**n, lambda n: 0.9**n]),
    "LambdaLR_of_objects": lambda o: lr_scheduler.LambdaLR(o, [Warming(), Warming()]),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda n: 0.95),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 4),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [3, 3, 11, 20]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=12),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=20),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 25, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 9),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.9),
    "CyclicLR_scaled": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda n: 0.9**n),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, STEPS + 2, three_phase=True),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2, cooldown=1),
    "SequentialLR": sequential,
    "ChainedScheduler": chained,
    "GradualWarmup": lambda o: GradualWarmup(o, 5, lr_scheduler.CosineAnnealingLR(o, 9)),
    "Pieces": Pieces,
}


def made(name):
    """An optimizer of two groups, and its scheduler."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    return optimizer, SCHEDULERS[name](optimizer)


def moved(optimizer, scheduler, first, last):
    """Steps; returns what the optimizer's groups are after each."""
    rates = []
    for step in range(first, last):
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(abs(step % 7 - 3) + 1.0 / (step + 1))
        else:
            scheduler.step()
        groups = settings_of(optimizer)
        rates.append([(g["lr"], g["momentum"], g.get("initial_lr")) for g in groups])
    return rates


def test_there_is_a_case_for_each_scheduler_of_torch():
    kinds = {
        name
        for name, kind in vars(lr_scheduler).items()
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler)
    }
    assert kinds - {"LRScheduler", "_LRScheduler"} <= {*SCHEDULERS}


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("stop", [0, 1, 6, 7, 13])
def test_killed_and_gone_on_the_learning_rates_are_those_of_no_stop(name, stop):
    whole = moved(*made(name), 0, STEPS)

    before, its = made(name)
    first = moved(before, its, 0, stop)
    stored = json.loads(json.dumps({"groups": settings_of(before), "scheduler": state_of(its)}))
    after, other = made(name)
    restore_settings(after, stored["groups"], "a trial")
    restore_state(other, stored["scheduler"])

    assert first + moved(after, other, stop, STEPS) == whole


def test_settings_keep_their_kinds():
    def with_settings(betas, decay):
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], betas=betas)
        group = optimizer.param_groups[0]
        group["decay"] = decay
        group["schedule"] = lambda step: step
        group["buffer"] = [[None, 2, 0.5]]
        group["lr"] = torch.tensor(betas[0])
        return optimizer

    one, other = with_settings((0.5, 0.6), float("inf")), with_settings((0.1, 0.2), 0.0)
    function = other.param_groups[0]["schedule"]
    restore_settings(other, json.loads(json.dumps(settings_of(one))), "a trial")
    group = other.param_groups[0]
    assert group["betas"] == (0.5, 0.6)
    assert isinstance(group["betas"], tuple)
    assert group["decay"] == float("inf")
    assert group["schedule"] is function
    assert group["buffer"] == [[None, 2, 0.5]]
    assert torch.equal(group["lr"], torch.tensor(0.5))


def test_other_groups_are_refused():
    two, _ = made("StepLR")
    one = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(TrialError, match="has 1 groups of parameters, and had 2 when"):
        restore_settings(one, settings_of(two), "mine.py")


def test_what_no_checkpoint_holds_is_warned_of(caplog):
    _, scheduler = made("StepLR")
    scheduler.queue = collections.deque([1])
    with caplog.at_level(logging.WARNING):
        stored = state_of(scheduler)
    assert "queue" not in stored
    assert "StepLR keeps queue as deque, which no checkpoint holds" in caplog.text


def test_an_enum_is_left_as_it_was_made():
    """An IntEnum is an int, and would come back as one."""
    kind = enum.IntEnum("Kind", ["WARM", "HOT"])
    one, other = made("StepLR")[1], made("StepLR")[1]
    one.kind, other.kind = kind.HOT, kind.WARM
    restore_state(other, json.loads(json.dumps(state_of(one))))
    assert other.kind is kind.WARM


def test_a_model_that_a_scheduler_knows_is_not_written_with_it():
    _, scheduler = made("StepLR")
    scheduler.model = torch.nn.Linear(2, 2)
    assert "model" not in state_of(scheduler)
