"""A trial without training: values that users keep on it, and how it is compared."""

from __future__ import annotations

import collections
import json
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.trial.attribute_state import AttributeState


class Best(NamedTuple):
    step: int
    loss: float


class Sample:
    def __init__(self, number, parent=None):
        self.number, self.parent = number, parent


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Window(list):
    def __init__(self, size):
        super().__init__()
        self.size = size


class Meter:
    def __init__(self):
        self.total = 0

    def state_dict(self):
        return {"total": self.total, "by": {1: (2, [3])}, "of": type(self)}

    def load_state_dict(self, state):
        assert state["by"] == {1: (2, [3])}
        assert state["of"] is type(self)
        self.total = state["total"]


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.drop = nn.Linear(2, 1), nn.Dropout(0.5)
        self._calls = 0
        self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.old = None


class Trial:
    totals: ClassVar[list[int]] = []
    transient: ClassVar[tuple[str, ...]] = ("cache",)

    def method(self):
        return self


class Made:
    """A trial as a start of its code makes it, and its state."""

    def __init__(self, setup):
        self.trial = type("Trial", (Trial,), {"__module__": __name__, "totals": [], "runs": 0})()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
            self.trial.model = self.model
            setup(self.trial)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.state = AttributeState(self.trial, self.model, self.optimizer, (), "mine.py")

    def checkpoint(self):
        kept, tensors = self.state.state(ONE_PROCESS)
        return json.dumps(kept, sort_keys=True), {n: t.clone() for n, t in tensors.items()}

    def restore(self, kept, tensors):
        self.state.restore(json.loads(kept), tensors, 0)


def restored(setup, change):
    """A trial that has changed, and one that has its state from a checkpoint."""
    one, other = Made(setup), Made(setup)
    change(one.trial)
    kept, tensors = one.checkpoint()
    other.restore(kept, tensors)
    assert other.checkpoint()[0] == kept  # which is what a run without a stop would write
    return one.trial, other.trial


def described(value, seen):
    """Says all of a value: types, order, numbers to the bit, and which objects are one."""
    kind = type(value).__name__
    if isinstance(value, float | complex | np.generic):
        return kind, repr(value)
    if (
        value is None
        or isinstance(value, int | str | bytes)
        or callable(value) is not hasattr(value, "forward")
    ):
        return kind, value
    if id(value) in seen:
        return "same", seen[id(value)]
    if not isinstance(value, tuple | frozenset):
        seen[id(value)] = len(seen)
    if isinstance(value, torch.Tensor):
        grad = described(value.grad if value.is_leaf else None, seen)
        return kind, value.dtype, value.shape, value.requires_grad, repr(value.tolist()), grad
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(described(v, seen)) for v in value)
    if isinstance(value, list | tuple | collections.deque):
        return kind, getattr(value, "maxlen", None), [described(v, seen) for v in value]
    if isinstance(value, torch.optim.Optimizer):
        weights = [described(group["params"], seen) for group in value.param_groups]
        return kind, weights, described(value.state_dict(), seen)
    is_module = isinstance(value, nn.Module)
    items = value if isinstance(value, dict) else vars(value)
    skipped = {*vars(nn.Module())} - {"_parameters", "_buffers", "_modules", "training"}
    pairs = [(k, v) for k, v in items.items() if not (is_module and k in skipped)]
    return kind, [(described(k, seen), described(v, seen)) for k, v in pairs]


def described_trial(trial):
    seen = {}
    return {n: described(v, seen) for n, v in sorted(vars(trial).items())}
