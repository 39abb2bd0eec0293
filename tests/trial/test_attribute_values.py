"""Each kind of value that a trial may keep on itself is restored equal, or refused by name."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import itertools
import json
import math
import random
import re
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from kept_trials import (
    Best,
    Critic,
    Made,
    Meter,
    Sample,
    Slotted,
    Window,
    described_trial,
    restored,
)
from torch import nn

from t2t_torch.errors import TrialError

Phase = enum.Enum("Phase", ["WARM", "HOT"])


def sets(name, value):
    """A change that assigns a value; a function makes it when it is called."""
    return lambda trial: setattr(trial, name, value() if callable(value) else value)


NOTHING = sets("unused", None)

VALUES = {
    "int for bool": 1,
    "float for int": 2.0,
    "nan": math.nan,
    "infinity": -math.inf,
    "minus zero": -0.0,
    "long int": 2**200,
    "complex": complex(1, math.nan),
    "float32": np.float32(0.1),
    "numpy's bool": np.bool_(True),
    "uint64": np.uint64(2**63),
    "date": np.datetime64("2019-05-01"),
    "numpy's string": np.str_(""),
    "nested tuples": ((1, ("a", (2.5,))), ()),
    "list of tuples and lists": lambda: [(1, 2), [1, 2]],
    "set": lambda: {"a", "b", (1, 2.5), frozenset([1, 2])},
    "frozenset": frozenset(["x", "y"]),
    "bounded deque": lambda: collections.deque([1, (2,)], maxlen=3),
    "ordered dict": lambda: collections.OrderedDict([("b", 1), ("a", 2)]),
    "counter": lambda: collections.Counter("abca"),
    "keys of all kinds": lambda: {1: "int", "1": [2], None: 0, (1, (2, "a")): 3, np.int64(7): 5},
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array of strings": lambda: np.array([["a", "bcd"]]),
    "array of big-endian numbers": lambda: np.arange(3, dtype=">i4"),
    "array of long doubles": lambda: np.zeros(2, np.longdouble),
    "array without elements": lambda: np.zeros((0, 3), np.float16),
    "array without axes": lambda: np.array(3),
    "tensor": lambda: torch.ones(2, 3),
    "half a tensor": lambda: torch.ones(2, dtype=torch.bfloat16).reshape(2, 1).t(),
    "tensor that needs a gradient": lambda: torch.ones(2, requires_grad=True),
    "tensor of a graph": lambda: (torch.ones(2, requires_grad=True) * 2).detach(),
    "conjugated tensor": lambda: torch.full((2,), 1 + 2j).conj(),
}
BEFORE = [
    *(None, 1, lambda: Sample),
    lambda: [0, [1]],
    lambda: {"a": 1, 1: [2]},
    lambda: np.zeros((2, 3)),
    lambda: torch.zeros(2, 3),
]


@pytest.mark.sample(12)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_restored_whatever_stood_in_its_place(value):
    for before in BEFORE:
        one, other = restored(sets("kept", before), sets("kept", VALUES[value]))
        assert described_trial(one) == described_trial(other), before


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_restored_within_others(value):
    def change(trial):
        item = VALUES[value]() if callable(VALUES[value]) else VALUES[value]
        trial.kept.append(item)
        trial.kept.append({"again": item, "tuple": (item, 1)})

    one, other = restored(sets("kept", list), change)
    assert described_trial(one) == described_trial(other)


CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def an_alias_read_before_its_object(trial):
    trial.a = trial.z = [1]
    trial.items = [[2], [3]]
    yield
    trial.a = trial.items[1]
    trial.a.append(4)
    trial.z = [1]


@case
def objects_that_change_places(trial):
    trial.one, trial.two = {"a": 1}, {"b": 2}
    trial.left, trial.right = torch.zeros(2), torch.ones(2)
    trial.pair = [trial.one, trial.right]
    yield
    trial.one, trial.two = trial.two, trial.one
    trial.left, trial.right = trial.right, trial.left


@case
def modules_that_change_places(trial):
    trial.nets = [Critic(), Critic()]
    trial.cur = trial.nets[0]
    trial.rule = torch.optim.Adam(trial.cur.parameters())
    yield
    trial.cur = trial.nets[1]
    trial.nets.reverse()
    trial.nets[0].line.weight.data.fill_(3)


@case
def an_equal_list_in_the_place_of_one_that_moved(trial):
    trial.a, trial.b = [1], None
    yield
    trial.b, trial.a = trial.a, [1]


@case
def new_objects_of_two_attributes(trial):
    trial.a = trial.b = torch.zeros(2)
    trial.c = trial.d = [0]
    yield
    trial.a = trial.b = torch.ones(2)
    trial.c = trial.d = [0]


@case
def cycles(trial):
    trial.loop = []
    yield
    trial.loop.append((trial.loop, {"a": trial.loop, "trial": trial}))


@case
def deleted_attributes(trial):
    trial.list, trial.warm = [1], True
    yield
    del trial.list, trial.warm


@case
def the_order_of_a_dict(trial):
    trial.recent = {"a": 1, "b": 2}
    yield
    trial.recent["a"] = trial.recent.pop("a")


@case
def a_dict_with_a_default(trial):
    trial.tree = collections.defaultdict(list)
    yield
    trial.tree["a"].append(1)


@case
def an_object_that_states_itself(trial):
    trial.meter = Meter()
    yield
    trial.meter.total = 3


@case
def parts_of_a_module(trial):
    trial.critic = Critic()
    yield
    trial.critic.eval()
    trial.critic._calls += 3
    trial.critic.seen += 1
    trial.critic.old = {"a": (1,)}
    trial.critic.line.bias.requires_grad_(False)
    trial.critic.line.weight.grad = torch.ones(1, 2)


@case
def a_buffer_that_comes_and_one_that_goes(trial):
    trial.critic = Critic()
    yield
    trial.critic.register_buffer("mean", torch.ones(2))
    del trial.critic.seen


@case
def gradual_unfreezing(trial):
    for parameter in trial.model.parameters():
        parameter.requires_grad_(False)
    yield
    trial.model[0].weight.requires_grad_(True)


@case
def weights_of_the_model(trial):
    trial.best = []
    yield
    trial.best = [trial.model[0].weight, trial.model[1].running_mean]


@case
def a_gradient_that_waits(trial):
    trial.noise = torch.zeros(2, requires_grad=True)
    yield
    (trial.noise * 3).sum().backward()


@case
def an_optimizer_of_a_tensor(trial):
    trial.z = torch.zeros(2, requires_grad=True)
    trial.adam = torch.optim.Adam([trial.z], lr=0.1)
    yield
    trial.z.sum().backward()
    trial.adam.step()


@case
def an_expanded_tensor(trial):
    trial.base = torch.zeros(1)
    trial.wide = trial.base.expand(3)
    yield
    trial.base += 2


@pytest.mark.parametrize("name", CASES)
def test_a_trial_is_restored_with_the_identity_of_its_objects(name):
    steps = {}

    def setup(trial):
        steps[trial] = CASES[name](trial)
        next(steps[trial])

    one, other = restored(setup, lambda trial: next(steps[trial], None))
    assert described_trial(one) == described_trial(other)


def test_a_lazy_module_has_its_weights_again():
    one, other = restored(
        sets("lazy", lambda: nn.LazyLinear(1)), lambda t: t.lazy(torch.ones(1, 2))
    )
    assert torch.equal(one.lazy(torch.ones(1, 2)), other.lazy(torch.ones(1, 2)))


def draws(trial):
    arrays = [g.random() for g in (trial.arrays, trial.philox, trial.shared)]
    more = [trial.old.rand(), trial.dice.random(), trial.dice.gauss(0, 1)]
    return [*arrays, *more, torch.rand(2, generator=trial.noise).tolist()]


def test_generators_go_on():
    def setup(trial):
        trial.noise, trial.old = torch.Generator().manual_seed(1), np.random.RandomState(2)
        trial.arrays, trial.dice = np.random.default_rng(3), random.Random(4)
        trial.philox = np.random.Generator(np.random.Philox(5))
        trial.bits = np.random.MT19937(6)
        trial.shared = np.random.Generator(trial.bits)

    def change(trial):
        draws(trial)
        trial.again = trial.arrays

    one, other = restored(setup, change)
    assert other.again is other.arrays
    assert draws(one) == draws(other)


LATE = {  # what a checkpoint can update but not create
    "module": nn.ReLU,
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "optimizer": lambda: torch.optim.SGD([torch.zeros(1)]),
    "generator": torch.Generator,
    "object with a state": Meter,
    "dict with a default": lambda: collections.defaultdict(list),
}
REFUSED = {
    **LATE,
    "enum": lambda: Phase.HOT,
    "bytes": lambda: b"ab",
    "dtype": lambda: torch.bfloat16,
    "device": lambda: torch.device("meta"),
    "size": lambda: torch.Size([2]),
    "path": lambda: Path("runs/one"),
    "range": lambda: range(3),
    "named tuple": lambda: Best(3, 1.0),
    "bytearray": lambda: bytearray(b"ab"),
    "list of a class": lambda: Window(1),
    "set of objects": lambda: {Phase.HOT},
    "object": lambda: Sample(1),
    "object with slots": Slotted,
    "namespace": lambda: types.SimpleNamespace(a=argparse.Namespace(b=(1,))),
    "lambda": lambda: lambda: 1,
    "partial": lambda: functools.partial(len),
    "lock": threading.Lock,
    "class": lambda: Sample,
    "sparse tensor": lambda: torch.eye(2).to_sparse(),
    "array of objects": lambda: np.array([None, {}]),
    "iterator": lambda: iter([1]),
    "iterator of a loader": lambda: iter(torch.utils.data.DataLoader([1])),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_value_of_another_kind_is_refused_by_name_unless_it_is_transient(kind):
    made = REFUSED[kind]
    name = re.escape(type(made()).__name__)
    for place, change in {
        "kept": lambda trial: setattr(trial, "kept", made()),
        "new": lambda trial: setattr(trial, "new", made()),
        "kept[0][1]": lambda trial: setattr(trial, "kept", [(1, made())]),
        "kept['a']": lambda trial: setattr(trial, "kept", {"a": made()}),
    }.items():
        one = Made(sets("kept", None))
        change(one.trial)
        listed = rf"mine.py: self\.{re.escape(place)} \({name}[^()]*\) changed after build_model"
        with pytest.raises(TrialError, match=rf"{listed}.*transient = \('{place[:3]}"):
            one.state.check()
    _, other = restored(NOTHING, sets("cache", made))
    assert not hasattr(other, "cache")


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if "iterator" not in kind])
def test_a_value_that_the_trials_code_makes_is_there_again(kind):
    def setup(trial):
        trial.kept = REFUSED[kind]()
        trial.items = [1, trial.kept]

    one, other = restored(setup, lambda trial: trial.items.append(2))
    assert other.items[1] is other.kept
    assert len(other.items) == len(one.items) == 3
    assert type(other.kept) is type(one.kept)


def test_an_iterator_is_refused_at_the_start():
    for iterator in (iter([1]), (n for n in [1]), itertools.cycle([1])):
        with pytest.raises(TrialError, match=r"self\.kept \(.*whose position is unknown"):
            Made(lambda trial, value=iterator: setattr(trial, "kept", value))


def assigns(path, value):
    return lambda trial: exec(f"trial.{path} = value", {"trial": trial, "value": value})


@pytest.mark.parametrize(
    ("value", "change", "refused"),
    [
        (lambda: Sample(1), assigns("kept.number", 2), "self.kept (Sample)"),
        (lambda: Sample(Sample(1)), assigns("kept.number.number", 2), r"kept.state['number'] (S"),
        (lambda: Sample(torch.ones(2)), lambda t: t.kept.number.add_(1), "self.kept (Sample)"),
        (lambda: [0, Sample([])], lambda t: t.kept[1].number.append(1), "self.kept[1] (Sample)"),
        (Slotted, assigns("kept.count", 2), "self.kept (Slotted)"),
        (lambda: Window(1), lambda t: t.kept.append(2), "self.kept (Window)"),
        (lambda: Window(1), assigns("kept.size", 2), "self.kept (Window)"),
        (lambda: bytearray(2), lambda t: t.kept.pop(), "self.kept (bytearray)"),
        (types.SimpleNamespace, assigns("kept.a", 2), "self.kept (SimpleNamespace)"),
        (lambda: {Best(1, 2.0)}, lambda t: t.kept.add(Best(2, 1.0)), "self.kept (set)"),
        (Critic, assigns("kept.old", Phase.HOT), "self.kept.old (Phase)"),
        (lambda: 0, lambda t: t.totals.append(1), "Trial.totals (class attribute)"),
        (lambda: 0, lambda t: setattr(type(t), "runs", 1), "Trial.runs (class attribute)"),
        (lambda: 0, assigns("model.phase", Phase.HOT), "build_model().phase (Phase)"),
    ],
)
def test_a_change_within_an_object_that_is_not_stored_is_refused_by_name(value, change, refused):
    one = Made(sets("kept", value))
    one.trial.steps = 1
    one.state.check()
    change(one.trial)
    with pytest.raises(TrialError, match=re.escape(refused)):
        one.checkpoint()


def test_objects_that_are_not_stored_may_hold_those_that_are():
    """An object is unchanged though the module, the list and the model that it refers to change."""

    def setup(trial):
        trial.critic, trial.seen = Critic(), []
        trial.a_helper = Sample(trial.critic, [trial.seen, trial.model, trial])

    def change(trial):
        trial.seen.append(1)
        trial.critic._calls = 3

    _, other = restored(setup, change)
    assert (other.seen, other.critic._calls) == ([1], 3)
    assert other.a_helper.number is other.critic
    assert other.a_helper.parent[0] is other.seen


def test_a_checkpoint_of_an_earlier_version_is_read():
    """Written before `state_dict` was called for optimizers, by commit 0dcab065."""

    def setup(trial):
        trial.critic, trial.meter = Critic(), Meter()
        trial.adam = torch.optim.Adam(trial.critic.parameters(), lr=0.1)
        trial.decay = torch.optim.lr_scheduler.StepLR(trial.adam, 1, gamma=0.5)
        trial.pool, trial.by = collections.deque(maxlen=2), collections.defaultdict(list)
        trial.counts, trial.rng = collections.Counter(), np.random.default_rng(1)
        trial.mean, trial.sums = torch.zeros(2), np.zeros(2)
        trial.phases, trial.gone = [{"a": 1}, {"b": 2}], 3
        trial.phase = trial.phases[0]

    def change(trial):
        for step in range(3):  # the last gradient waits for its step
            trial.adam.zero_grad()
            trial.critic.line(torch.ones(1, 2)).sum().backward()
            if step < 2:
                trial.adam.step()
                trial.decay.step()
            trial.pool.append((step, trial.rng.random()))
            trial.by["steps"].append(step)
            trial.counts[f"of {step}"] += step
        trial.meter.total, trial.critic._calls = 3, 4
        trial.critic.line.bias.requires_grad_(False)
        trial.mean += 1
        trial.sums += 2
        trial.phase = trial.phases[1]
        items = [None, np.float32(0.5), {"x", "y"}, complex(1, 2)]
        trial.best = {"row": trial.mean.clone(), 1: items}
        trial.order = collections.OrderedDict([("b", float("inf")), ("a", np.array(["x"]))])
        del trial.gone

    file = Path(__file__).parents[1] / "golden" / "trial_attributes.json"
    stored = json.loads(file.read_text())
    tensors = {
        n: torch.tensor(v, dtype=getattr(torch, k)) for n, (k, v) in stored["tensors"].items()
    }
    one, other = Made(setup), Made(setup)
    change(one.trial)
    other.restore(json.dumps(stored["kept"]), tensors)
    assert other.trial.rng.random() == one.trial.rng.random()
    states = [
        str([trial.adam.state_dict(), trial.decay.state_dict(), vars(trial.meter)])
        for trial in (one.trial, other.trial)
    ]
    assert states[0] == states[1]
    for name in ("adam", "decay", "rng"):
        del vars(one.trial)[name], vars(other.trial)[name]
    assert described_trial(one.trial) == described_trial(other.trial)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"quaternion": [1]}, r"holds self\.kept in a form \('quaternion'\)"),
        ({"enum": ["mine:Phase", "HOT"]}, r"form \('enum'\)"),
        (
            {"object": {}, "@class": "subprocess:Popen", "@new": True},
            r"form \('subprocess:Popen'\)",
        ),
        ({"tuple": [], "@class": "mine:Best"}, r"form \('mine:Best'\)"),
        ({"generator": "00"}, r"self\.kept \(generator of random numbers\).*does not create"),
        ({"module": {}}, r"self\.kept \(module\).*does not create"),
        ({"same": "self.other"}, r"self\.other \(object\).*does not create"),
        (
            {"tensor": "self.kept"},
            r"self\.kept cannot be restored from the checkpoint: 'self.kept'",
        ),
    ],
)
def test_a_node_that_cannot_be_restored_is_refused_by_name(node, said):
    other = Made(sets("kept", None))
    with pytest.raises(TrialError, match=said):
        other.restore(json.dumps({"self.kept": {"all": node}}), {})


def test_a_class_attribute_of_an_earlier_version_is_refused_by_name():
    with pytest.raises(TrialError, match=r"Trial\.runs in a form \('class attribute'\)"):
        Made(NOTHING).restore('{"Trial.runs": {"all": {"plain": 1}}}', {})


@pytest.mark.parametrize(
    ("makes", "change"),
    [
        (
            lambda n: np.random.Generator([np.random.PCG64, np.random.Philox][n](1)),
            lambda g: g.random(),
        ),
        (lambda n: nn.Linear(2, 3 + n), lambda module: module.weight.data.fill_(2)),
        (
            lambda n: torch.optim.SGD(nn.Linear(2, 2, n).parameters()),
            lambda o: o.param_groups[0].update(lr=1),
        ),
    ],
)
def test_an_object_of_another_form_is_refused_by_name(makes, change):
    one, other = (Made(sets("kept", functools.partial(makes, n))) for n in (0, 1))
    change(one.trial.kept)
    with pytest.raises(TrialError, match=r"mine.py: self\.kept cannot be restored"):
        other.restore(*one.checkpoint())


def test_everything_is_given_back_after_a_try():
    def setup(trial):
        for number, made in enumerate(VALUES.values()):
            setattr(trial, f"kept{number}", made() if callable(made) else made)
        trial.again, trial.cache = trial.kept13, 1

    one = Made(setup)
    before, objects = described_trial(one.trial), dict(vars(one.trial))
    undo = one.state.remember()
    for value in [*vars(one.trial).values()]:
        if isinstance(value, list | collections.deque):
            value.append(1)
        elif isinstance(value, dict | set):
            value.clear()
    one.trial.new = one.trial.kept0 = 3
    one.trial.cache = 2
    del one.trial.again
    undo()
    assert one.trial.cache == 2  # transient
    one.trial.cache = 1
    assert described_trial(one.trial) == before
    assert all(vars(one.trial)[name] is objects[name] for name in ("model", "kept13", "kept20"))
