"""Each kind of value that a trial may keep on itself is restored equal, or refused by name."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import json
import logging
import math
import random
import threading
import types
from pathlib import Path
from typing import Any

import kept_trials
import numpy as np
import pytest
import torch
from kept_trials import (
    Best,
    Critic,
    Frozen,
    Guarded,
    Level,
    Made,
    Meter,
    Parts,
    Phase,
    Renamed,
    Sample,
    SlotsAndMore,
    Slotted,
    Window,
    described_trial,
    restored,
)
from torch import nn

from t2t_torch.errors import TrialError


def sets(name, value):
    """A change that assigns a value; a function makes it when it is called."""
    return lambda trial: setattr(trial, name, value() if callable(value) else value)


NOTHING = sets("unused", None)

VALUES = {
    "enum": Phase.HOT,
    "int enum": Level.HIGH,
    "flag": Parts.ENCODER | Parts.DECODER,
    "no flag": Parts(0),
    "int for bool": 1,
    "float for int": 2.0,
    "nan": math.nan,
    "infinity": -math.inf,
    "minus zero": -0.0,
    "long int": 2**200,
    "half a surrogate pair": "\udc80",
    "complex": complex(1, math.nan),
    "bytes": b"\x00\xff",
    "bytearray": lambda: bytearray(b"ab"),
    "float32": np.float32(0.1),
    "float64": np.float64(0.1),
    "numpy's bool": np.bool_(True),
    "uint64": np.uint64(2**63),
    "date": np.datetime64("2019-05-01"),
    "numpy's string": np.str_(""),
    "dtype": torch.bfloat16,
    "device": torch.device("cpu"),
    "size": torch.Size([2, 3]),
    "path": Path("runs/one"),
    "range": range(3, 9, 2),
    "slice": slice(None, 3),
    "nested tuples": ((1, ("a", (2.5,))), ()),
    "named tuple": Best(3, math.nan),
    "named tuple of another name": Renamed(1, [2]),
    "list of tuples and lists": lambda: [(1, 2), [1, 2], Best(1, 2.0)],
    "set": lambda: {"a", "b", (1, Phase.HOT), frozenset([1, 2])},
    "frozenset": frozenset(["x", "y"]),
    "bounded deque": lambda: collections.deque([1, (2,)], maxlen=3),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "ordered dict": lambda: collections.OrderedDict([("b", 1), ("a", 2)]),
    "counter": lambda: collections.Counter("abca"),
    "keys of all kinds": lambda: {
        1: "int",
        "1": "str",
        None: 0,
        Phase.HOT: [1],
        Level.HIGH: 2,
        (1, (2, Phase.HOT)): 3,
        0.5: 4,
        np.int64(7): 5,
        b"k": 6,
    },
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array of strings": lambda: np.array([["a", "bcd"]]),
    "array of big-endian numbers": lambda: np.arange(3, dtype=">i4"),
    "array of complex numbers": lambda: np.array([1j, np.nan]),
    "array of long doubles": lambda: np.zeros(2, np.longdouble),
    "array without elements": lambda: np.zeros((0, 3), np.float16),
    "array without axes": lambda: np.array(3),
    "object": lambda: Sample(1, [Sample(2)]),
    "objects with tensors": lambda: [Sample(torch.ones(2)), {"a": Sample(torch.zeros(1))}],
    "frozen dataclass": lambda: Frozen(1, Frozen(2, {"a": [1]})),
    "object with slots": Slotted,
    "namespace": lambda: types.SimpleNamespace(a=argparse.Namespace(b=(1,))),
    "tensor": lambda: torch.ones(2, 3),
    "complex tensor": lambda: torch.ones(2, dtype=torch.complex64),
    "half a tensor": lambda: torch.ones(2, dtype=torch.bfloat16).reshape(2, 1).t(),
    "tensor that needs a gradient": lambda: torch.ones(2, requires_grad=True),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "conjugated tensor": lambda: torch.full((2,), 1 + 2j).conj(),
}
BEFORE = [
    *(None, 1, Phase.WARM, Frozen),
    lambda: [0, [Sample(0)]],
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
    made = VALUES[value]

    def change(trial):
        item = made() if callable(made) else made
        trial.kept.append(item)
        trial.kept.append({"again": item, "tuple": (item, 1)})
        trial.sample = Sample(item)

    one, other = restored(sets("kept", list), change)
    assert described_trial(one) == described_trial(other)


def case(function):
    CASES[function.__name__] = function
    return function


CASES: dict[str, Any] = {}


@case
def an_alias(trial):
    trial.phases = [Sample(0), Sample(1)]
    trial.cur = trial.phases[0]
    yield
    trial.cur = trial.phases[1]
    trial.cur.number = 5


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
    trial.a, trial.b = Sample(1), Sample(2)
    trial.one, trial.two = {"a": 1}, {"b": 2}
    trial.left, trial.right = torch.zeros(2), torch.ones(2)
    trial.pair = [trial.a, trial.right]
    yield
    trial.a, trial.b = trial.b, trial.a
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
def cycles(trial):
    trial.root = Sample(0)
    trial.loop = []
    yield
    trial.root.parent = Sample(1, parent=trial.root)
    trial.root.trial = trial
    trial.loop.append((trial.loop, {"a": trial.loop}))


@case
def deleted_attributes(trial):
    trial.cache, trial.warm = [1], True
    trial.sample = Sample(1)
    trial.slots = Slotted()
    trial.critic = Critic()
    yield
    del trial.cache, trial.warm, trial.sample.parent, trial.slots.count, trial.critic.old


@case
def the_order_of_a_dict(trial):
    trial.recent = {"a": 1, "b": 2}
    yield
    trial.recent["a"] = trial.recent.pop("a")


@case
def objects_with_slots(trial):
    trial.slots, trial.more = Slotted(), SlotsAndMore()
    yield
    trial.slots.grow()
    trial.more.grow()
    trial.more.more["a"] = trial.slots


@case
def a_guarded_object(trial):
    trial.guarded = Guarded()
    yield
    trial.guarded._rate = 0.25


@case
def a_frozen_object(trial):
    trial.frozen = Frozen(1, [1])
    yield
    trial.frozen.inner.append(2)
    object.__setattr__(trial.frozen, "step", 7)


@case
def containers_of_the_trials_own(trial):
    trial.window = Window(2)
    trial.tree = collections.defaultdict(lambda: [0])
    yield
    for step in range(4):
        trial.window.append(step)
    trial.window.size = 3
    trial.tree["a"].append(1)


@case
def attributes_of_the_class(trial):
    yield
    trial.totals.append(3)
    type(trial).runs += 1


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
    trial.best, trial.row = [], None
    yield
    trial.best = [trial.model[0].weight, trial.model[1].running_mean]
    trial.row = trial.model[0].weight.detach()[1:]


@case
def a_gradient_that_waits(trial):
    trial.noise = torch.zeros(2, requires_grad=True)
    yield
    (trial.noise * 3).sum().backward()


@case
def an_expanded_tensor(trial):
    trial.base = torch.zeros(1)
    trial.wide = trial.base.expand(3)
    yield
    trial.base += 2


@case
def an_array_and_its_alias(trial):
    trial.sums = trial.same = np.zeros(2)
    yield
    trial.sums += 1


@case
def functions_that_move_in_a_list(trial):
    trial.losses = [len, sum, trial.method]
    yield
    trial.losses.reverse()


@pytest.mark.parametrize("name", CASES)
def test_a_trial_is_restored_with_the_identity_of_its_objects(name):
    def setup(trial):
        trial_of[id(trial)] = steps = CASES[name](trial)
        next(steps)

    def change(trial):
        next(trial_of[id(trial)], None)

    trial_of: dict[int, Any] = {}
    one, other = restored(setup, change)
    functions = {"losses", "tree"}
    left, right = described_trial(one), described_trial(other)
    for own in (left, right):
        for function in functions & {*own[0]}:
            own[0].pop(function)
    assert left == right


def test_a_view_of_the_models_weights_stays_one():
    one, other = restored(NOTHING, lambda trial: setattr(trial, "w", [trial.model[0].weight.data]))
    assert other.w[0].data_ptr() == other.model[0].weight.data_ptr()
    assert torch.equal(other.w[0], one.w[0])


def test_functions_keep_their_places():
    def setup(trial):
        trial.first, trial.second = len, functools.partial(sum, start=1)
        trial.tree = collections.defaultdict(lambda: [0])
        trial.losses = [trial.first, trial.method, trial.second]

    def change(trial):
        trial.losses = [trial.losses[2], trial.method]
        trial.tree["a"].append(1)

    _, other = restored(setup, change)
    assert other.losses == [other.second, other.method]
    assert (other.tree["a"], other.tree["b"]) == ([0, 1], [0])


def draws(trial):
    arrays = [g.random() for g in (trial.arrays, trial.philox, trial.shared, trial.new_style)]
    children = [child.random() for child in trial.arrays.spawn(2)]
    more = [trial.old.rand(), trial.dice.random(), trial.dice.gauss(0, 1)]
    return [*arrays, *children, *more, torch.rand(2, generator=trial.noise).tolist()]


def test_generators_go_on():
    def setup(trial):
        trial.noise, trial.old = torch.Generator().manual_seed(1), np.random.RandomState(2)
        trial.arrays, trial.dice = np.random.default_rng(3), random.Random(4)
        trial.philox = np.random.Generator(np.random.Philox(5))
        trial.bits = np.random.MT19937(6)
        trial.shared = np.random.Generator(trial.bits)
        trial.new_style = np.random.Generator(np.random.SFC64(7))

    def change(trial):
        draws(trial)
        trial.again = trial.arrays

    one, other = restored(setup, change)
    assert other.again is other.arrays
    assert draws(one) == draws(other)


def test_a_generator_of_another_kind_is_refused_by_name():
    one, other = (
        Made(sets("bits", np.random.Generator(kind(1))))
        for kind in (np.random.PCG64, np.random.Philox)
    )
    one.trial.bits.random()
    with pytest.raises(TrialError, match=r"self\.bits is a generator of another kind"):
        other.state.restore(json.loads(one.checkpoint()[0]), {}, 0)


LEFT_OUT = {
    "lambda": lambda: lambda: 1,
    "partial": lambda: functools.partial(len),
    "lock": threading.Lock,
    "logger": lambda: logging.getLogger("mine"),
    "sparse tensor": lambda: torch.eye(2).to_sparse(),
    "array of objects": lambda: np.array([None, {}]),
    "masked array": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "a class of a function": lambda: type("Local", (), {})(),
    "a number of another class": lambda: type("Step", (int,), {})(3),
    "a module": nn.ReLU,
    "a fresh defaultdict": lambda: collections.defaultdict(lambda: 1),
}


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_what_cannot_be_stored_is_refused_in_a_container_and_in_a_new_object(kind):
    for change in (
        lambda trial: trial.kept.append((1, LEFT_OUT[kind]())),
        lambda trial: setattr(trial, "kept", {"a": LEFT_OUT[kind]()}),
        lambda trial: setattr(trial, "kept", Sample(LEFT_OUT[kind]())),
    ):
        one = Made(sets("kept", list))
        change(one.trial)
        with pytest.raises(
            TrialError, match=r"cannot store self\.kept(\[0\]\[1\]|\['a'\]|\.number) \("
        ):
            one.state.check()


@pytest.mark.parametrize("kind", LEFT_OUT)
@pytest.mark.parametrize("item", [False, True])
def test_what_is_made_later_and_cannot_be_stored_is_warned_of_at_both_ends(kind, item, caplog):
    """As at the first step the trial's code makes it itself."""
    one, other = Made(NOTHING), Made(NOTHING)
    alias = Sample(torch.ones(1))
    one.trial.late = [alias, LEFT_OUT[kind]()] if item else LEFT_OUT[kind]()
    one.trial.steps, one.trial.then = 3, [alias, alias]
    with caplog.at_level(logging.WARNING):
        kept, tensors = one.checkpoint()
        assert ("self.late[1] (" if item else "self.late (") in caplog.text
        caplog.clear()
        other.state.restore(json.loads(kept), tensors, 0)
        assert "self.late (" in caplog.text
    assert (hasattr(other.trial, "late"), other.trial.steps) == (False, 3)
    assert other.trial.then[0] is other.trial.then[1]


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_what_cannot_be_stored_but_was_made_at_the_start_is_there_again(kind):
    def setup(trial):
        trial.kept = LEFT_OUT[kind]()
        trial.items = [1, trial.kept]

    one, other = restored(setup, lambda trial: trial.items.append(2))
    assert other.items[1] is other.kept
    assert len(other.items) == len(one.items) == 3


def test_numbers_of_a_tensor_are_stored_without_its_graph_and_that_is_told(caplog):
    def change(trial):
        trial.last = (trial.model[0].weight * 2).sum()

    with caplog.at_level(logging.WARNING):
        one, other = restored(NOTHING, change)
    assert other.last.item() == one.last.item()
    assert other.last.grad_fn is None
    assert "self.last has a grad_fn" in caplog.text


@pytest.mark.parametrize(
    ("value", "gone", "said"),
    [
        (Phase.HOT, "HOT", r"self\.kept = Phase\.HOT, and Phase has only WARM now"),
        (Parts.DECODER, "DECODER", r"self\.kept = 2, which is no value of Parts \(ENCODER\)"),
        (Best(1, 2.0), None, r"holds a Best in self\.kept, and .* has no such class"),
        (Sample(1), None, r"holds a Sample in self\.kept, and .* has no such class"),
    ],
)
def test_a_member_or_a_class_that_is_gone_is_refused_by_name(value, gone, said, monkeypatch):
    one, other = Made(NOTHING), Made(NOTHING)
    one.trial.kept = value
    kept, tensors = one.checkpoint()
    kind, module = type(value), vars(kept_trials)
    members = {n: m.value for n, m in getattr(kind, "__members__", {}).items() if n != gone}
    if gone is None:
        monkeypatch.delitem(module, kind.__name__)
    else:
        base = enum.Flag if isinstance(value, enum.Flag) else enum.Enum
        other_kind = base(kind.__name__, members, module=kept_trials.__name__)
        monkeypatch.setitem(module, kind.__name__, other_kind)
    with pytest.raises(TrialError, match=said):
        other.state.restore(json.loads(kept), tensors, 0)


def test_a_checkpoint_makes_no_object_of_another_package():
    other = Made(NOTHING)
    node = {"object": {}, "@class": "subprocess:Popen", "@new": True}
    with pytest.raises(TrialError, match=r"self\.kept"):
        other.state.restore({"self.kept": {"all": node}}, {}, 0)


def test_a_form_of_another_version_is_refused_by_name():
    with pytest.raises(TrialError, match=r"holds self\.kept in a form \('quaternion'\)"):
        Made(NOTHING).state.restore({"self.kept": {"all": {"quaternion": [1]}}}, {}, 0)


def test_deep_structures_are_told(caplog):
    def change(trial):
        for number in range(60):
            trial.chain = Sample(number, trial.chain)

    one = Made(sets("chain", None))
    change(one.trial)
    with pytest.raises(TrialError, match=r"\(Sample"):
        one.state.check()


ITERATORS = {
    "list_iterator": lambda: iter([1]),
    "generator": lambda: (n for n in [1]),
    "cycle": lambda: __import__("itertools").cycle([1]),
    "_SingleProcessDataLoaderIter": lambda: iter(torch.utils.data.DataLoader([1])),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_iterator_is_refused_with_what_to_do(kind):
    with pytest.raises(TrialError, match=rf"{kind} in self\.kept.*list\(\.\.\.\).*position"):
        Made(sets("kept", ITERATORS[kind]))


def test_everything_is_given_back_after_a_try():
    def setup(trial):
        for number, made in enumerate(VALUES.values()):
            setattr(trial, f"kept{number}", made() if callable(made) else made)
        trial.again = trial.kept0

    one = Made(setup)
    before, objects = described_trial(one.trial), dict(vars(one.trial))
    with one.state.preserved():
        for value in [*vars(one.trial).values()]:
            if isinstance(value, list | collections.deque):
                value.append(1)
            elif isinstance(value, dict | set):
                value.clear()
        one.trial.new = one.trial.kept0 = 3
        one.trial.totals.append(1)
        del one.trial.again
    assert described_trial(one.trial) == before
    assert all(vars(one.trial)[name] is objects[name] for name in ("model", "kept13", "kept29"))
