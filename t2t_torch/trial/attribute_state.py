"""State of a trial's attributes: stored in checkpoints, restored when a run resumes.

Only attributes that changed after their creation are stored: attributes computed from the
configuration follow changes of the configuration.  A change that cannot be stored is an error,
unless the trial names the attribute in `transient`.  Values are JSON and tensors; nothing is
pickled.

| Value | Node |
|---|---|
| None, bool, int, float, str; complex; number of numpy | `plain`; `complex`; `number` |
| tensor; array | `tensor`; `array` |
| list, tuple, dict, set, frozenset, deque, OrderedDict, Counter, defaultdict | the type's name |
| `nn.Module` | `module` |
| object with `state_dict` and `load_state_dict` | `state` |
| generator of random numbers | `generator` |
| object that has a node already | `same`: its path |
| other value, which is not stored | `opaque`: its type |

A trial's code creates its objects on each start, and a checkpoint restores values into them.  An
object is known by its path at the start of a process: `@at` is this path if the object is elsewhere
now, and `@new` marks tensors, arrays and containers that training created.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import io
import itertools
import json
import random
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from t2t_torch.errors import TrialError
from t2t_torch.trial.schedule import LRScheduler, from_plain, to_plain
from t2t_torch.trial.user_code import is_of_user

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World

Node = dict[str, Any]
"""A stored value: its kind and content.  Keys with the prefix "@" qualify it."""

_SELF = "self."
_DELETED: Node = {"deleted": True}

MODEL = "build_model()"
"""Path of the model that `build_model` returned."""

_PLAIN = (type(None), bool, int, float, str)
_NUMBERS = "biufcmMSU"  # numpy dtype kinds whose bytes are the complete value
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_CONTAINERS: dict[str, Any] = {kind.__name__: kind for kind in (*_SEQUENCES, *_DICTS)}
_NUMPY_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)
_GENERATORS = (torch.Generator, random.Random, *_NUMPY_GENERATORS)
_PARTS = ("_parameters", "_buffers", "_modules")
_NOT_STATE = {*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"} - {"training"}


class Objects:
    """Objects of a trial by path.

    Tensors and arrays are held by weak references: the trial's code may replace large ones.

    Attributes:
      paths: functions that return an object, or None if it no longer exists, by path.
      contents: hashes of the contents of objects that are not stored, by path.
    """

    def __init__(self) -> None:
        self.paths: dict[str, Callable[[], Any]] = {}
        self.contents: dict[str, str] = {}
        self._names: dict[int, str] = {}

    def add(self, value: Any, path: str) -> None:
        """Adds an object."""
        is_large = isinstance(value, Tensor | np.ndarray)
        self.paths[path] = weakref.ref(value) if is_large else lambda: value
        self._names.setdefault(id(value), path)

    def at(self, path: str) -> Any:
        """Returns the object at a path; None if there is none."""
        return self.paths[path]() if path in self.paths else None

    def path_of(self, value: Any) -> str | None:
        """Returns the path of an object; None if it was created later."""
        path = self._names.get(id(value))
        return path if path is not None and self.at(path) is value else None


class Capture:
    """The values of all attributes at one time.

    Args:
      attributes: value of each attribute, by name.
      known: objects that the loop stores, by path.
      device: device of the trial.
      transient: names of attributes that are neither stored nor compared.
      start: objects that the trial's code created on startup; None during startup.

    Attributes:
      nodes: node of each attribute.
      tensors: tensors of each attribute, by path.
      objects: all objects, by path.
      refused: types of values that have changed and cannot be stored, by path.
      trains: names of the attributes that hold an optimizer or a scheduler.
    """

    def __init__(
        self,
        attributes: Mapping[str, Any],
        known: Mapping[str, Any],
        device: torch.device,
        transient: Iterable[str] = (),
        start: Objects | None = None,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.tensors: dict[str, dict[str, Tensor]] = collections.defaultdict(dict)
        self.objects = Objects()
        self.refused: dict[str, str] = {}
        self.trains: set[str] = set()
        self._device, self._transient, self._start = device, {*transient}, start
        self._root = ""  # name of the current attribute
        self._by_value = False  # True: which objects hold the values is irrelevant
        self._seen: dict[int, tuple[Any, Node]] = {}  # objects and references to them, by id
        self._trained: dict[str, dict[str, Tensor]] = collections.defaultdict(dict)
        self._compared: dict[str, tuple[Any, Any]] = {}
        for path, value in known.items():
            self._add(value, path)
        for name, value in self._without_transient(attributes).items():
            self._root = name
            self.nodes[name] = self._node(value, name)
        self._by_value = True
        while self._compared:  # after all attributes: these objects may refer to theirs
            path, (value, contents) = self._compared.popitem()
            self._root = f"contents of {path}"
            nodes = self._fields(contents, path)
            digest = _digest(nodes, self.tensors.pop(self._root, {}))
            self.objects.contents[path] = digest
            if start is not None and start.contents.get(path) != digest:
                self.refused[path] = type(value).__name__

    def digests(self) -> dict[str, str]:
        """Returns a hash of each attribute's value."""
        return {
            name: _digest(node, self.tensors.get(name, {}) | self._trained.get(name, {}))
            for name, node in self.nodes.items()
        }

    def _without_transient(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in values.items() if n.rpartition(".")[2] not in self._transient}

    def _add(self, value: Any, path: str, **is_new: bool) -> None:
        self._seen.setdefault(id(value), (value, {"same": path, **is_new}))
        if not is_new:
            self.objects.add(value, path)

    def _target(self, value: Any, path: str, *, can_be_new: bool) -> Node:
        """Adds an object; returns the object of a resumed run that receives its state."""
        at = path if self._start is None else self._start.path_of(value)
        if at is None and not can_be_new:
            self.refused[path] = f"{type(value).__name__}, created during training"
        is_new = {"@new": True} if at is None or (can_be_new and self._by_value) else {}
        self._add(value, path, **is_new)
        return is_new or ({} if at == path else {"@at": at})

    def _node(self, value: Any, path: str) -> Node:
        if type(value) in _PLAIN:
            return {"plain": to_plain(value)}
        if type(value) is complex:
            return {"complex": [to_plain(value.real), to_plain(value.imag)]}
        if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
            return {"number": [value.dtype.str, value.tobytes().hex()]}
        if id(value) in self._seen:
            is_parameter = isinstance(value, nn.Parameter)
            trained = {"@requires_grad": value.requires_grad} if is_parameter else {}
            return {**self._seen[id(value)][1], **trained}
        kinds = (capture for types, capture in _CAPTURE if isinstance(value, types))
        return next(kinds, Capture._object)(self, value, path)

    def _tensor(self, value: Tensor, path: str) -> Node:
        is_parameter, is_lazy = isinstance(value, nn.Parameter), nn.parameter.is_lazy(value)
        is_dense = value.layout is torch.strided and not value.is_meta and not is_lazy
        if not is_dense or not (is_parameter or type(value) is Tensor):
            return self._opaque(value, path)
        node = {"tensor": path, **self._target(value, path, can_be_new=not is_parameter)}
        self.tensors[self._root][path] = value.detach()
        if value.device.type == "cpu" and (not value.ndim or self._device.type != "cpu"):
            node["@cpu"] = True
        if value.is_leaf and value.requires_grad:
            node["@requires_grad"] = True
        if value.is_leaf and value.grad is not None:
            node["@grad"] = self._node(value.grad, f"{path}.grad")
        return node

    def _array(self, value: np.ndarray[Any, Any], path: str) -> Node:
        if type(value) is not np.ndarray or value.dtype.kind not in _NUMBERS:
            return self._opaque(value, path)
        flat = np.frombuffer(value.tobytes(), np.uint8).copy()
        self.tensors[self._root][path] = torch.from_numpy(flat)
        target = self._target(value, path, can_be_new=True)
        return {"array": [path, value.dtype.str, list(value.shape)], **target}

    def _container(self, value: Any, path: str) -> Node:
        kind, node = type(value), Node()
        is_set = kind in (set, frozenset)
        if kind not in _CONTAINERS.values() or (is_set and not all(map(_is_constant, value))):
            return self._opaque(value, path)
        if kind not in (tuple, frozenset):  # a default factory cannot be stored
            node = self._target(value, path, can_be_new=kind is not collections.defaultdict)
        if kind is collections.deque and value.maxlen is not None:
            node["@maxlen"] = value.maxlen
        items = node[kind.__name__] = self._items(value, path)
        if is_set:  # its order differs between processes
            items.sort(key=json.dumps)
        return node

    def _items(self, value: Any, path: str) -> list[Any]:
        """Returns the nodes of a container's items; of a dict, pairs of key and item."""
        if not isinstance(value, dict):
            return [self._node(item, f"{path}[{place}]") for place, item in enumerate(value)]
        pairs = []
        for place, (key, item) in enumerate(value.items()):
            name = self._node(key, f"{path}{{{place}}}.key")
            pairs.append([name, self._node(item, _path_of_item(path, key, place))])
        return pairs

    def _fields(self, fields: Mapping[str, Any], path: str) -> dict[str, Node]:
        return {name: self._node(value, f"{path}.{name}") for name, value in fields.items()}

    def _module(self, value: nn.Module, path: str) -> Node:
        node = self._target(value, path, can_be_new=False)
        node |= {f"@{part}": self._fields(vars(value)[part], path) for part in _PARTS}
        fields = self._without_transient(_fields_of_module(value))
        if self._root == MODEL:  # the loop sets the mode of its model
            fields.pop("training", None)
        return {**node, "module": self._fields(fields, path)}

    def _generator(self, value: Any, path: str) -> Node:
        state = to_plain(_generator_state(value))
        return {"generator": state, **self._target(value, path, can_be_new=False)}

    def _object(self, value: Any, path: str) -> Node:
        methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
        is_stateful = not isinstance(value, type) and all(map(callable, methods))
        state = value.state_dict() if is_stateful else None
        if not isinstance(state, Mapping):
            return self._opaque(value, path)
        node = self._target(value, path, can_be_new=False)
        if isinstance(value, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
            self.trains.add(self._root)
        if isinstance(value, torch.optim.Optimizer):
            held = [weight for group in value.param_groups for weight in group["params"]]
            weights = {f"{path}.{place}.weight": weight for place, weight in enumerate(held)}
            node["@weights"] = [self._node(weight, place) for place, weight in weights.items()]
            self._trained[self._root] |= {place: w.detach() for place, w in weights.items()}
        by_value, self._by_value = self._by_value, True
        node["state"] = self._items(dict(state), path)
        self._by_value = by_value
        return node

    def _opaque(self, value: Any, path: str) -> Node:
        """Returns the node of a value that is not stored: the trial's code creates it again."""
        contents = _contents(value)
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase) and contents is None:
            self.refused[path] = f"{type(value).__name__}, whose position is unknown"
        elif self._start is not None:
            before = self._start.at(path)
            is_alike = contents is not None or before is value or _is_equal(before, value)
            if type(before) is not type(value) or not is_alike:
                self.refused[path] = type(value).__name__
        if contents is not None and path not in self.refused:
            self._compared[path] = value, contents
        self._add(value, path)
        return {"opaque": type(value).__name__}


_CAPTURE: tuple[tuple[Any, Callable[[Capture, Any, str], Node]], ...] = (
    (Tensor, Capture._tensor),
    (np.ndarray, Capture._array),
    ((*_SEQUENCES, dict), Capture._container),
    (nn.Module, Capture._module),
    (_GENERATORS, Capture._generator),
    (LRScheduler, lambda capture, value, path: capture._node(value.scheduler, path)),
)
"""Types and their methods; other values are objects."""


class Restore:
    """Restores stored values.

    Args:
      tensors: tensors of the checkpoint, by path.
      device: device of the trial.
      objects: objects created by the trial's code.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], device: torch.device, objects: Objects
    ) -> None:
        self._tensors, self._device, self._objects = tensors, device, objects
        self._alive = [objects.at(path) for path in objects.paths]  # until all are restored
        self._written: dict[str, Any] = {}

    @torch.no_grad()
    def value(self, node: Node, path: str) -> Any:
        """Returns the value of a node: the existing object, updated, or a new one.

        Raises:
          TrialError: an object does not exist or has another type.
        """
        key = next(key for key in node if not key.startswith("@"))
        # Earlier versions stored a Counter as a dict with a class.
        kind = (node.get("@class") or key).removeprefix("collections:")
        target = None if "@new" in node else self._objects.at(node.get("@at", path))
        if kind in _CONTAINERS:
            return self._container(_CONTAINERS[kind], node, node[key], path, target)
        if kind not in _RESTORE:
            raise TrialError(
                f"the checkpoint holds {path} in a form ({kind!r}) that this version does not "
                "read. Resume with the version that wrote it."
            )
        made = _RESTORE[kind](self, node, path, target)
        self._written.setdefault(path, made)
        return made

    def _existing(self, target: Any, path: str, kind: Any, name: str) -> Any:
        """Returns an object that the trial's code creates, and marks it as restored."""
        if target is None or not isinstance(target, kind):
            raise TrialError(
                f"the checkpoint holds {path} ({name}), and the trial does not create it. Create "
                "it as when the checkpoint was written: in __init__, build_model or optimizer."
            )
        self._written[path] = target
        return target

    def _same(self, node: Node, _path: str, _target: Any) -> Any:
        made = self._written.get(node["same"])
        if made is None:
            made = self._existing(self._objects.at(node["same"]), node["same"], object, "object")
        if "@requires_grad" in node:
            made.requires_grad_(node["@requires_grad"])
        return made

    def _tensor(self, node: Node, path: str, target: Any) -> Tensor:
        stored = self._tensors[node["tensor"]]
        if nn.parameter.is_lazy(target):
            target.materialize(stored.shape)
        if "@parameter" in node:  # of earlier versions, which also created them
            self._existing(target, path, nn.Parameter, "parameter")
        if isinstance(target, nn.Parameter) and not _fits(target, stored):
            raise ValueError(f"its shape is {[*target.shape]}, in the checkpoint {[*stored.shape]}")
        made: Tensor = target
        if not isinstance(target, Tensor) or not _fits(target, stored):
            made = stored.clone() if "@cpu" in node else stored.to(self._device, copy=True)
        elif torch._debug_has_internal_overlap(target) != 1:  # an expanded tensor follows its base
            target.detach().copy_(stored)
        if made.is_leaf and (made.is_floating_point() or made.is_complex()):
            made.requires_grad_("@requires_grad" in node)
            made.grad = self.value(node["@grad"], f"{path}.grad") if "@grad" in node else None
        return made

    def _array(self, node: Node, _path: str, target: Any) -> Any:
        name, dtype, shape = node["array"]
        stored = np.frombuffer(self._tensors[name].numpy().tobytes(), dtype).reshape(shape)
        if not isinstance(target, np.ndarray) or not _fits(target, stored):
            return stored.copy()
        target[...] = stored
        return target

    def _container(self, kind: Any, node: Node, content: Any, path: str, target: Any) -> Any:
        if kind in (tuple, frozenset):
            return kind(self._items(content, path))
        made, maxlen = target, node.get("@maxlen")
        if kind is collections.defaultdict:
            self._existing(target, path, kind, "defaultdict")
        elif type(target) is not kind or getattr(target, "maxlen", None) != maxlen:
            made = kind(maxlen=maxlen) if kind is collections.deque else kind()
        self._written[path] = made
        is_dict = issubclass(kind, dict)
        items: Any = dict(self._pairs(content, path)) if is_dict else self._items(content, path)
        made.clear()
        (made.update if is_dict or kind is set else made.extend)(items)
        return made

    def _items(self, nodes: list[Node], path: str) -> list[Any]:
        return [self.value(node, f"{path}[{place}]") for place, node in enumerate(nodes)]

    def _pairs(self, pairs: list[list[Node]], path: str) -> Iterator[tuple[Any, Any]]:
        for place, (key, node) in enumerate(pairs):
            name = self.value(key, f"{path}{{{place}}}.key")
            yield name, self.value(node, _path_of_item(path, name, place))

    def _module(self, node: Node, path: str, target: Any) -> Any:
        self._existing(target, path, nn.Module, "module")
        for part in _PARTS:
            members, nodes = vars(target)[part], node[f"@{part}"]
            for name in members.keys() - nodes.keys():
                del members[name]
            for name, member in nodes.items():
                members[name] = self.value(member, f"{path}.{name}")
        for name, field in node["module"].items():
            vars(target)[name] = self.value(field, f"{path}.{name}")
        return target

    def _state(self, node: Node, path: str, target: Any) -> Any:
        self._existing(target, path, object, "optimizer" if "@weights" in node else "object")
        for place, weight in enumerate(node.get("@weights", ())):
            self.value(weight, f"{path}.{place}.weight")
        target.load_state_dict(dict(self._pairs(node["state"], path)))
        return target

    def _optimizer(self, node: Node, path: str, target: Any) -> Any:
        """Reads the form of earlier versions: settings, weights and slots, no `state_dict`."""
        self._existing(target, path, torch.optim.Optimizer, "optimizer")
        slots, groups = {}, target.state_dict()["param_groups"]
        for place, stored in enumerate(node["optimizer"]["parameters"]):
            self.value(stored["weight"], f"{path}.{place}.weight")
            slots[place] = dict(self._pairs(stored["slots"], f"{path}.{place}"))
        for group, settings in zip(groups, node["optimizer"]["settings"], strict=True):
            group |= dict(self._pairs(settings, path))
        slots = {place: own for place, own in slots.items() if own}
        target.load_state_dict({"state": slots, "param_groups": groups})
        return target

    def _generator(self, node: Node, path: str, target: Any) -> Any:
        self._existing(target, path, _GENERATORS, "generator of random numbers")
        _set_generator_state(target, node["generator"])
        return target


_RESTORE: dict[str, Callable[[Restore, Node, str, Any], Any]] = {
    "plain": lambda _r, node, _p, _t: from_plain(None, node["plain"]),
    "complex": lambda _r, node, _p, _t: complex(*(from_plain(None, n) for n in node["complex"])),
    "number": lambda _r, node, _p, _t: np.ndarray(
        (), node["number"][0], bytes.fromhex(node["number"][1])
    )[()],
    "tensor": Restore._tensor,
    "array": Restore._array,
    "module": Restore._module,
    "state": Restore._state,
    "optimizer": Restore._optimizer,
    "generator": Restore._generator,
    "same": Restore._same,
    "opaque": lambda r, node, path, target: r._existing(target, path, object, node["opaque"]),
}
"""Kinds of nodes, except containers, and their methods."""


def _fits(made: Any, stored: Any) -> bool:
    return bool(made.shape == stored.shape and made.dtype == stored.dtype)


def _path_of_item(path: str, key: Any, place: int) -> str:
    return f"{path}[{key!r}]" if type(key) in (bool, int, str) else f"{path}{{{place}}}"


def _digest(node: Any, tensors: Mapping[str, Tensor]) -> str:
    value = hashlib.sha256(json.dumps(node, sort_keys=True).encode())
    for path, tensor in tensors.items():
        value.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        value.update(flat.view(torch.uint8).numpy().data)
    return value.hexdigest()


def _generator_state(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().tolist()).hex()
    if isinstance(value, np.random.Generator):
        return [value.bit_generator.state]
    if isinstance(value, np.random.BitGenerator):
        return value.state
    is_legacy = isinstance(value, np.random.RandomState)
    return value.get_state(legacy=False) if is_legacy else value.getstate()


def _set_generator_state(value: Any, state: Any) -> None:
    if isinstance(value, torch.Generator):
        value.set_state(torch.tensor([*bytes.fromhex(state)], dtype=torch.uint8))
    elif isinstance(value, np.random.Generator):
        _set_generator_state(value.bit_generator, state[0])
    else:
        made = from_plain(_generator_state(value), state)
        if isinstance(value, np.random.BitGenerator):
            value.state = made
        else:
            (value.set_state if isinstance(value, np.random.RandomState) else value.setstate)(made)


def _is_constant(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    return type(value) in (*_PLAIN, complex) or isinstance(value, np.generic)


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # raised by the values' own code
        return False


def _contents(value: Any) -> dict[str, Any] | None:
    """Returns the contents of an object that is compared but not stored; None for other values.

    These are objects of the user's classes, and containers of other types than the stored ones.
    """
    built_in = (*_SEQUENCES, dict, bytearray, types.SimpleNamespace, argparse.Namespace)
    is_compared = is_of_user(type(value)) or isinstance(value, built_in)
    if not is_compared or isinstance(value, DataLoader | Dataset | Sampler):
        return None
    try:
        _, *parts = value.__reduce_ex__(2)  # as for pickle, but only of this object
    except Exception:  # it cannot be copied
        return None
    parts = [list(part) if isinstance(part, Iterator) else part for part in parts]
    return dict(zip(("arguments", "state", "items", "pairs"), parts, strict=False))


def _fields_of_module(module: nn.Module) -> dict[str, Any]:
    """Returns a module's attributes other than parameters, buffers and submodules.

    Of classes of other packages, names with an underscore are private: only numbers and tensors
    among them are state.
    """
    is_own, state = is_of_user(type(module)), (*_PLAIN, Tensor, np.ndarray)
    fields = {n: v for n, v in sorted(vars(module).items()) if n not in _NOT_STATE}
    return {n: v for n, v in fields.items() if is_own or n[0] != "_" or isinstance(v, state)}


class AttributeState:
    """State of the attributes of a trial and of its model, apart from the model's weights.

    Args:
      trial: instance of the trial class; its optimizer has been created.
      model: model of the trial.
      optimizer: optimizer that the loop steps.
      known: other objects that are stored elsewhere.
      what: name of the trial, for error messages.

    Attributes:
      model: model of the trial.

    Raises:
      TrialError: an attribute can never be stored, such as an iterator.
    """

    def __init__(
        self,
        trial: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        known: Iterable[Any],
        what: str,
    ) -> None:
        self._trial = trial
        self.model = model
        self._known = {"self": trial, "optimizer()": optimizer}
        self._known |= {f"scheduler {number}": one for number, one in enumerate(known)}
        self._what = what
        self._device = next(model.parameters()).device
        transient = getattr(type(trial), "transient", ())
        self._transient = (transient,) if isinstance(transient, str) else tuple(transient)
        self._warned: set[str] = set()
        start = self._capture()
        self._refuse(start.refused)
        self._start, self._digests = start.objects, start.digests()

    def _capture(self, start: Objects | None = None) -> Capture:
        """Returns the values of all attributes of the model, the trial and the trial's class."""
        named = (*self.model.named_parameters(), *self.model.named_buffers())
        stored = self.model.state_dict()  # by the loop
        known = self._known | {f"{MODEL}.{name}": t for name, t in named if name in stored}
        attributes = {MODEL: self.model}
        attributes |= {f"{_SELF}{n}": v for n, v in sorted(vars(self._trial).items())}
        for kind in filter(is_of_user, reversed(type(self._trial).__mro__)):
            attributes |= {
                f"{kind.__name__}.{name}": value
                for name, value in vars(kind).items()
                if not name.startswith("__") and not hasattr(type(value), "__get__")
            }  # without methods and descriptors
        return Capture(attributes, known, self._device, self._transient, start)

    def check(self) -> tuple[Capture, dict[str, str]]:
        """Returns the values of all attributes, and the hashes of those that changed.

        Raises:
          TrialError: a checkpoint cannot store a change.
        """
        capture = self._capture(self._start)
        digests = capture.digests().items()
        changed = {name: digest for name, digest in digests if digest != self._digests.get(name)}
        of_class = {n: "class attribute" for n in changed if not n.startswith((_SELF, MODEL))}
        self._refuse(of_class | capture.refused)
        return capture, changed

    def _refuse(self, refused: Mapping[str, str]) -> None:
        outer = [
            path
            for path in sorted(refused)
            if not any(path.startswith((f"{other}.", f"{other}[")) for other in refused)
        ]
        if outer:
            listed = ", ".join(f"{path} ({refused[path]})" for path in outer)
            names = sorted({re.findall(r"\.(\w+)", path)[-1] for path in outer})
            raise TrialError(
                f"{self._what}: {listed} changed after build_model, and a checkpoint cannot store "
                "it. Keep numbers, strings, tensors, arrays, or lists, tuples, dicts and sets of "
                "these; or give its class state_dict and load_state_dict, and create it in "
                "__init__, build_model or optimizer; or list it in the trial's class, transient = "
                f"{(*names,)}: a resumed run then has what the trial's code creates."
            )

    def state(self, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the changed values in JSON form, and their tensors; a collective call.

        Values that differ between processes are stored per process; for tensors, the leader's are
        stored.

        Raises:
          TrialError: an optimizer or a scheduler differs between processes; or see `check`.
        """
        capture, changed = self.check()
        own = {n: (capture.nodes[n], digest, n in capture.tensors) for n, digest in changed.items()}
        gone = self._digests.keys() - capture.nodes.keys()
        own |= dict.fromkeys(sorted(gone), (_DELETED, "", False))
        processes = world.gather(own)
        stored: dict[str, Any] = {}
        for name in dict.fromkeys(itertools.chain(*processes)):
            values = [one.get(name) for one in processes]
            nodes = [value and value[0] for value in values]
            if all(v and values[0] and v[1] == values[0][1] for v in values):
                stored[name] = {"all": nodes[0]}
            elif name in capture.trains:
                raise TrialError(
                    f"{self._what}: {name}, or the weights that it trains, differs between the "
                    "processes: only gradients of the loss that the trial returns are averaged. "
                    "Train it in one process, or average its gradients (torch.distributed) before "
                    "its step."
                )
            elif not any(v and v[2] for v in values):
                stored[name] = {"each": nodes}
            else:
                self._warn(name, "differs between processes, and the leader's is stored")
                stored |= {name: {"all": nodes[0]}} if nodes[0] else {}
        tensors = {p: t for name in stored for p, t in capture.tensors.get(name, {}).items()}
        return stored, tensors

    def restore(self, stored: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int) -> None:
        """Restores the result of `state`.

        Raises:
          TrialError: an object no longer exists, or has another type.
        """
        restore = Restore(tensors, self._device, self._start)
        for name, value in sorted(stored.items(), key=lambda item: (item[0] != MODEL, item[0])):
            each = value.get("each", [value.get("all")])
            if len(each) > 1 and rank >= len(each):
                self._warn(name, f"was stored for {len(each)} processes, and the first's is taken")
            node = each[rank if rank < len(each) else 0]
            if name != MODEL and not name.startswith(_SELF):
                node = {"class attribute": node}  # earlier versions stored them
            if node is not None and name.removeprefix(_SELF) not in self._transient:
                self._write(restore, name, node)

    def _write(self, restore: Restore, name: str, node: Node) -> None:
        own = name.removeprefix(_SELF)
        if node == _DELETED:
            vars(self._trial).pop(own, None)
            return
        try:
            value = restore.value(node, name)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise TrialError(
                f"{self._what}: {name} cannot be restored from the checkpoint: {error}. Create it "
                "as when the checkpoint was written."
            ) from error
        if own != name:
            vars(self._trial)[own] = value

    def remember(self) -> Callable[[], None]:
        """Returns a function that restores the current values of all attributes."""
        before = self._capture()
        tensors = {p: t.clone() for own in before.tensors.values() for p, t in own.items()}
        names = {*vars(self._trial)}

        def undo() -> None:
            for name in vars(self._trial).keys() - names - {*self._transient}:
                del vars(self._trial)[name]
            restore = Restore(tensors, self._device, before.objects)
            for name, node in before.nodes.items():
                self._write(restore, name, node)

        return undo

    def _warn(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("%s: %s %s", self._what, name, message)
