"""A trial without training: classes and values that users keep on it, and how it is compared."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import types
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.trial.attribute_state import AttributeState


class Phase(enum.Enum):
    WARM = "w"
    HOT = "h"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Parts(enum.Flag):
    ENCODER = enum.auto()
    DECODER = enum.auto()


class Best(NamedTuple):
    step: int
    loss: float


Renamed = collections.namedtuple("Other", ["left", "right"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    step: int = 0
    inner: Any = None


class Slotted:
    __slots__ = ("__hidden", "count", "late")

    def __init__(self):
        self.count, self.__hidden = 0, [1]

    def grow(self):
        self.count += 1
        self.late = self.__hidden
        self.__hidden.append(self.count)


class SlotsAndMore(Slotted):
    def __init__(self):
        super().__init__()
        self.more = {}


class Sample:
    def __init__(self, number, parent=None):
        self.number, self.parent = number, parent


class Guarded:
    """Its attributes can be set by its own code alone."""

    def __init__(self):
        self._rate = 1.0

    @property
    def rate(self):
        return self._rate

    def __setattr__(self, name, value):
        if name != "_rate":
            raise AttributeError(name)
        super().__setattr__(name, value)


class Window(list):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def append(self, item):
        super().append(item)
        del self[: -self.size]


class Meter:
    def __init__(self):
        self.total = 0

    def state_dict(self):
        return {"total": self.total, "by": {1: (2, 3)}, "of": type(self)}

    def load_state_dict(self, state):
        assert state["by"] == {1: (2, 3)}
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
    runs = 0

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
        self.state = AttributeState(self.trial, self.model, self.optimizer, list, "mine.py")

    def checkpoint(self):
        kept, tensors = self.state.state(ONE_PROCESS)
        return json.dumps(kept, sort_keys=True), {n: t.clone() for n, t in tensors.items()}


def restored(setup, change):
    """What is kept on a trial that has changed, and on one that has its state from a checkpoint."""
    one, other = Made(setup), Made(setup)
    change(one.trial)
    kept, tensors = one.checkpoint()
    other.state.restore(json.loads(kept), tensors, 0)
    assert other.checkpoint()[0] == kept  # which is what a run without a stop would write
    return one.trial, other.trial


def described(value, seen):
    """Says all of a value: types, order, numbers to the bit, and which objects are one."""
    if isinstance(value, float | complex | np.generic):
        return type(value).__name__, repr(value)
    if value is None or isinstance(
        value,
        int
        | str
        | bytes
        | type
        | enum.Enum
        | torch.dtype
        | torch.device
        | range
        | slice
        | Path
        | types.FunctionType,
    ):
        return type(value).__name__, value
    if id(value) in seen:
        return "same", seen[id(value)]
    if not isinstance(value, tuple | frozenset):
        seen[id(value)] = len(seen)
    if isinstance(value, torch.Tensor):
        flags = (type(value).__name__, value.dtype, value.shape, value.requires_grad)
        return *flags, repr(value.tolist()), described(value.grad if value.is_leaf else None, seen)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, nn.Module):
        names = ("_parameters", "_buffers", "_modules")
        own = {k: v for k, v in vars(value).items() if k in names or not k.startswith("_")}
        return type(value).__name__, described(own, seen), value.__dict__.get("_calls")
    if isinstance(value, dict):
        pairs = [(described(k, seen), described(v, seen)) for k, v in value.items()]
        factory = getattr(value, "default_factory", None)
        return type(value).__name__, factory, pairs
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(repr(described(v, seen)) for v in value)
    if isinstance(value, list | tuple | collections.deque):
        items = [described(v, seen) for v in value]
        own = [described(v, seen) for v in getattr(value, "__dict__", {}).values()]
        return type(value).__name__, getattr(value, "maxlen", None), items, own
    if isinstance(value, bytearray):
        return bytes(value)
    names = {n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())}
    names = {f"_Slotted{n}" if n.startswith("__") else n for n in names}
    fields = {n: getattr(value, n) for n in names if hasattr(value, n)}
    fields |= getattr(value, "__dict__", {})
    return type(value).__name__, [(n, described(v, seen)) for n, v in sorted(fields.items())]


def described_trial(trial):
    seen = {}
    own = {n: described(v, seen) for n, v in sorted(vars(trial).items())}
    return own, described(type(trial).totals, seen), type(trial).runs
