"""Capture of the state that a trial's code keeps on `self`, in the form stored in checkpoints.

Examples are the second optimizer of a GAN, a moving average of the weights, a random number
generator and a counter.  The trial's code creates these objects on each start.  A checkpoint stores
their values as JSON and tensors, and a resumed run restores them into the new objects.

Objects keep their identity: an object that the trial's code created on startup is identified by its
path at that time, and a second reference to an object is stored as the path of the first.
"""

from __future__ import annotations

import argparse
import collections
import copyreg
import dataclasses
import enum
import hashlib
import io
import json
import logging
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.schedule import LRScheduler, from_plain, to_plain

# Immutable attribute values as JSON, and the class names in checkpoints.
#
# A class is named `module:Class` and is looked up among the modules already imported. No name in a
# checkpoint is ever imported or called.


Node = dict[str, Any]
"""A stored value: its kind and content.  Keys with the prefix "@" qualify it."""

NUMBERS = "biufcmMSU"
"""The numpy dtype kinds whose bytes are the complete value."""

_PLAIN = (type(None), bool, int, float, str)

_OF_PYTHON = (
    *(collections.OrderedDict, collections.Counter, collections.defaultdict),
    *(types.SimpleNamespace, argparse.Namespace),
)


def to_node(value: Any) -> Node | None:
    """Returns the node of an immutable scalar value; None for other values."""
    kind = type(value)
    if kind in _PLAIN:
        return {"plain": to_plain(value)}
    if isinstance(value, enum.Enum):
        name = class_name(kind)
        if name is None:
            return None
        if isinstance(value, enum.Flag):  # combinations of members have no name
            return {"flag": [name, value.value]}
        return {"enum": [name, value.name]}
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS:
        return {"number": [value.dtype.str, value.tobytes().hex()]}
    if kind is complex:
        return {"complex": [to_plain(value.real), to_plain(value.imag)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is torch.Size:
        return {"size": list(value)}
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind is type(Path()):
        return {"path": str(value)}
    if kind in (range, slice):
        parts = [value.start, value.stop, value.step]
        if {*map(type, parts)} <= {int, type(None)}:
            return {kind.__name__: parts}
    return None


def from_node(node: Node, path: str) -> Any:
    """Returns the value of a node created by `to_node`.

    Args:
      node: node of an immutable value.
      path: path of the attribute, for error messages.

    Raises:
      TrialError: an enumeration or its member no longer exists.
    """
    kind = kind_of(node)
    if kind in ("enum", "flag"):
        return (_member if kind == "enum" else _flag)(path, *node[kind])
    if kind not in _MADE:
        raise TrialError(
            f"the checkpoint holds {path} in a form ({kind!r}) that this version does not read. "
            "Resume with the version that wrote it."
        )
    return _MADE[kind](node[kind])


def kind_of(node: Node) -> str:
    """Returns the kind of a node."""
    return next(key for key in node if not key.startswith("@"))


def _member(path: str, name: str, member: str) -> Any:
    kind = class_of(name, enum.Enum, path)
    if member not in kind.__members__:
        raise TrialError(
            f"the checkpoint holds {path} = {kind.__name__}.{member}, and {kind.__name__} has "
            f"only {', '.join(kind.__members__)} now. Add the member again."
        )
    return kind[member]


def _flag(path: str, name: str, value: int) -> Any:
    kind = class_of(name, enum.Flag, path)
    try:
        return kind(value)
    except ValueError:
        raise TrialError(
            f"the checkpoint holds {path} = {value}, which is no value of {kind.__name__} "
            f"({', '.join(kind.__members__)}) any more. Add the member again."
        ) from None


def _number(content: list[str]) -> Any:
    dtype, data = np.dtype(content[0]), bytes.fromhex(content[1])
    return np.frombuffer(data, dtype)[0] if dtype.itemsize else np.zeros((), dtype)[()]


_MADE: dict[str, Callable[[Any], Any]] = {
    "plain": lambda content: from_plain(None, content),
    "number": _number,
    "complex": lambda content: complex(*(from_plain(None, part) for part in content)),
    "bytes": bytes.fromhex,
    "size": torch.Size,
    "dtype": lambda content: getattr(torch, content),
    "path": Path,
    "range": lambda content: range(*content),
    "slice": lambda content: slice(*content),
}


def class_name(kind: type[Any]) -> str | None:
    """Returns the name by which `class_of` locates a class; None if it cannot be located."""
    module = sys.modules.get(kind.__module__)
    if _at(module, kind.__qualname__) is kind:
        return f"{kind.__module__}:{kind.__qualname__}"
    for name, value in vars(module).items() if module else ():  # a renamed namedtuple
        if value is kind:
            return f"{kind.__module__}:{name}"
    return None


def class_of(name: str, base: type[Any], path: str) -> Any:
    """Returns the class with a name returned by `class_name`.

    Args:
      name: name of the class.
      base: required base class.
      path: path of the attribute, for error messages.

    Raises:
      TrialError: the class no longer exists, or has another base.
    """
    module, _, place = name.partition(":")
    # A file whose module name is already taken is imported as trial_<name>.
    for known in (module, f"trial_{module}", module.removeprefix("trial_")):
        kind = _at(sys.modules.get(known), place)
        if isinstance(kind, type) and issubclass(kind, base):
            return kind
    raise TrialError(
        f"the checkpoint holds a {place} in {path}, and {module} has no such class any more. "
        "Define it where it was defined when the checkpoint was written."
    )


def _at(module: Any, place: str) -> Any:
    for part in place.split("."):
        module = getattr(module, part, None)
    return module


def is_of_user(kind: type[Any]) -> bool:
    """Returns True if a class belongs neither to Python nor to an installed package."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file or kind.__module__.split(".")[0] in {*sys.stdlib_module_names, "t2t_torch"}:
        return False
    return "site-packages" not in file and "dist-packages" not in file


def has_known_fields(kind: type[Any]) -> bool:
    """Returns True if an instance's fields hold its whole state, or it is a builtin container."""
    return kind in _OF_PYTHON or is_of_user(kind)


def new_instance(kind: type[Any]) -> Any:
    """Returns an instance without fields, without a call of `__init__`.

    Raises:
      TypeError: a base class is implemented in C.
    """
    return kind() if kind is types.SimpleNamespace else object.__new__(kind)


def fields_of(value: Any) -> dict[str, Any]:
    """Returns the contents of an instance's `__dict__` and `__slots__`."""
    slots = copyreg._slotnames(type(value))  # type: ignore[attr-defined]  # as pickle finds them
    fields = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    fields.update(getattr(value, "__dict__", {}))
    return {n: v for n, v in fields.items() if not (n.startswith("__") and n.endswith("__"))}


def set_field(owner: Any, name: str, value: Any) -> None:
    """Sets a field, bypassing `__setattr__` and frozen dataclasses."""
    if _is_slot(owner, name):
        object.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def drop_field(owner: Any, name: str) -> None:
    """Deletes a field if it exists."""
    if not _is_slot(owner, name):
        vars(owner).pop(name, None)
    elif hasattr(owner, name):
        object.__delattr__(owner, name)


def _is_slot(owner: Any, name: str) -> bool:
    return isinstance(getattr(type(owner), name, None), types.MemberDescriptorType)


def generator_state(value: Any) -> Any:
    """Returns the state of a random number generator; None for other objects."""
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().tolist()).hex()
    if isinstance(value, np.random.Generator):
        seeds: Any = value.bit_generator.seed_seq
        return [value.bit_generator.state, getattr(seeds, "n_children_spawned", 0)]
    if isinstance(value, np.random.BitGenerator):
        return value.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate()
    return None


def set_generator_state(value: Any, state: Any) -> None:
    """Restores the result of `generator_state` after a round trip through JSON.

    Raises:
      RuntimeError, TypeError, ValueError: the state is of another type of generator.
    """
    if isinstance(value, torch.Generator):
        value.set_state(torch.tensor(list(bytes.fromhex(state)), dtype=torch.uint8))
    elif isinstance(value, np.random.Generator):
        state, spawned = state
        value.bit_generator.state = from_plain(value.bit_generator.state, state)
        seeds: Any = value.bit_generator.seed_seq
        more = spawned - getattr(seeds, "n_children_spawned", spawned)
        if more > 0:
            seeds.spawn(more)  # can only advance: the counter cannot be set
    elif isinstance(value, np.random.BitGenerator):
        value.state = from_plain(value.state, state)
    elif isinstance(value, np.random.RandomState):
        value.set_state(from_plain(value.get_state(legacy=False), state))
    else:
        value.setstate(from_plain(value.getstate(), state))


MODEL = "build_model()"
"""Path of the model that `build_model` returned."""

SCHEDULER = "scheduler "
"""Prefix of the paths of schedulers stored by the loop, followed by a number."""

PARTS_OF_MODULES = ("_parameters", "_buffers", "_modules")
_NOT_STATE = (
    *(torch.utils.data.DataLoader, torch.utils.data.Dataset, torch.utils.data.Sampler),
    *(type, logging.Logger, BaseException, io.IOBase),
    *(enum.Enum, bool, int, float, complex, str, bytes),  # of classes that cannot be located
)
CONTAINERS = (list, collections.deque, collections.OrderedDict, dict, set, bytearray)
FACTORIES = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)}
"""Default factories of `defaultdict` that can be stored."""

_DEEPEST = 40  # maximum nesting depth

_REFERENCES = (weakref.ref, weakref.ProxyType, weakref.CallableProxyType)


class StartupObjects:
    """The objects that the trial's code created on startup, by path.

    Tensors and arrays are held by weak references: the code may replace large ones.

    Attributes:
      names: names of the attributes.
      roots: root attribute of each path.
      fields: field names of each object, by path.
    """

    def __init__(self) -> None:
        self._held: dict[str, Callable[[], Any]] = {}
        self._paths: dict[int, str] = {}
        self.names: set[str] = set()
        self.roots: dict[str, str] = {}
        self.fields: dict[str, set[str]] = {}

    def add(self, value: Any, path: str, root: str) -> None:
        """Adds an object and its root attribute."""
        self.roots[path] = root
        large = isinstance(value, Tensor | np.ndarray)
        self._held[path] = weakref.ref(value) if large else lambda: value
        self._paths.setdefault(id(value), path)

    def at(self, path: str) -> Any:
        """Returns the object at a path; None if there is none."""
        return self._held[path]() if path in self._held else None

    def objects(self) -> list[Any]:
        """Returns all objects that still exist."""
        return [held() for held in self._held.values()]

    def path_of(self, value: Any) -> str | None:
        """Returns the initial path of an object; None if it was created later."""
        path = self._paths.get(id(value))
        return path if path is not None and self.at(path) is value else None


@dataclasses.dataclass
class Capture:
    """The values of all attributes at one time.

    Attributes:
      nodes: value of each attribute, by name.
      tensors: tensors of each attribute, by path.
      compared: tensors that are compared to detect changes but not stored.
      places: all objects, by path.
      aliases: for each attribute, the attributes with objects that it references.
      moved: for each attribute, the attributes where its objects were on startup.
      trains: names of the attributes that hold an optimizer or a scheduler.
      late: types of objects that a resumed run needs but does not create, by path.
      refused: types of values that can be neither stored nor omitted, by path.
      unstored: types of omitted values, by path.
      graphs: paths of tensors that are stored without their autograd graph.
    """

    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    tensors: dict[str, dict[str, Tensor]] = dataclasses.field(default_factory=dict)
    compared: dict[str, dict[str, Tensor]] = dataclasses.field(default_factory=dict)
    places: StartupObjects = dataclasses.field(default_factory=StartupObjects)
    aliases: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    moved: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    trains: set[str] = dataclasses.field(default_factory=set)
    late: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    unstored: dict[str, str] = dataclasses.field(default_factory=dict)
    graphs: set[str] = dataclasses.field(default_factory=set)

    def digests(self) -> dict[str, str]:
        """Returns a hash of each attribute's value; equal new objects have equal hashes."""
        digests = {}
        for name, node in self.nodes.items():
            value = hashlib.sha256(json.dumps(_without_new(node), sort_keys=True).encode())
            for path, tensor in (self.compared.get(name, {}) | self.tensors.get(name, {})).items():
                value.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
                flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
                value.update(flat.view(torch.uint8).numpy().data)
            digests[name] = value.hexdigest()
        return digests


def _without_new(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_new(value) for key, value in node.items() if key != "@new"}
    return [_without_new(item) for item in node] if isinstance(node, list) else node


class Reader:
    """Reads the attributes of a trial.

    Each `_read` method returns the node of a value, or None if it cannot be stored.

    Args:
      known: objects stored by the loop, by name: the model's tensors, the optimizer.
      device: device of the trial.
      made: objects created by the trial's code on startup; None during startup.

    Attributes:
      capture: the captured values.
    """

    def __init__(
        self, known: Mapping[str, Any], device: torch.device, made: StartupObjects | None = None
    ) -> None:
        self.capture = Capture()
        self._made = made
        self._device = device
        self._root = ""
        self._depth = 0  # depth below the attribute
        self._seen: dict[int, tuple[str, str]] = {}  # path and attribute, by id
        self._claimed: dict[str, str] = {}  # places of `made`, and the path now there
        self._storages: dict[int, str] = {}
        self._held: list[Any] = []
        for name, value in known.items():
            self._see(value, name)
            if isinstance(value, Tensor) and value.numel():
                self._storages.setdefault(value.untyped_storage().data_ptr(), name)

    def read(self, name: str, value: Any) -> None:
        """Adds an attribute.

        An attribute that the trial's code created after startup and that cannot be stored
        completely is omitted: its code creates it again.
        """
        self._root = name
        self.capture.places.names.add(name)
        is_new = self._made is not None and name not in self._made.names
        seen, refused = dict(self._seen) if is_new else {}, dict(self.capture.refused)
        self.capture.nodes[name] = self._node(value, name, strict=False)
        if is_new and self.capture.refused != refused:
            self._seen = seen
            self.capture.unstored |= dict(self.capture.refused.items() - refused.items())
            self.capture.refused = refused
            self.capture.tensors.pop(name, None)
            self.capture.nodes[name] = {"unstored": type(value).__name__}

    def _see(self, value: Any, path: str) -> None:
        self._seen.setdefault(id(value), (path, self._root))
        self.capture.places.add(value, path, self._root)
        self._held.append(value)  # keeps its id from being reused

    def _target(self, value: Any, path: str, *, by_place: bool) -> dict[str, Any]:
        """Returns the target of an object in a resumed run: "@at" a path, or "@new".

        With `by_place`, an object of the same class at the same path receives the state of another
        object.
        """
        if self._made is None:
            return {}
        at = self._made.path_of(value)
        if at is None and by_place and type(self._made.at(path)) is type(value):
            at = path
        if at is None:
            return {"@new": True}
        if self._claimed.setdefault(at, path) != path:  # path claimed by another object
            self.capture.late[path] = type(value).__name__
        if at == path:
            return {}
        self.capture.moved.setdefault(self._root, set()).add(self._made.roots[at])
        return {"@at": at}

    def _needed(self, value: Any, path: str) -> dict[str, Any]:
        """Returns the target of an object that a checkpoint can update but not create."""
        target = self._target(value, path, by_place=True)
        if "@new" in target:
            self.capture.late[path] = type(value).__name__
        self._see(value, path)
        return target

    def _node(self, value: Any, path: str, *, strict: bool = True) -> Node:
        """Returns the node of a value.

        Args:
          value: value of an attribute, or nested in one.
          path: path of the value.
          strict: whether the value cannot be omitted, such as a list item.
        """
        node = to_node(value)
        if node is not None:
            return node
        if isinstance(value, torch.device):
            return {"device": str(value), "@own": value.type == self._device.type}
        if id(value) in self._seen:
            at, root = self._seen[id(value)]
            if root != self._root:
                self.capture.aliases.setdefault(self._root, set()).add(root)
            return {"same": at}
        if type(value) in _REFERENCES or isinstance(value, _NOT_STATE):
            return self._left_out(value, path, strict=strict)
        if self._depth > _DEEPEST:
            node = self._left_out(value, path, strict=strict)
            self.capture.unstored[path] = f"{type(value).__name__}, over {_DEEPEST} levels deep"
            return node
        read = next((r for kinds, r in _READ if isinstance(value, kinds)), Reader._read_object)
        self._depth += 1
        node = read(self, value, path)
        self._depth -= 1
        return self._left_out(value, path, strict=strict) if node is None else node

    def _left_out(self, value: Any, path: str, *, strict: bool) -> Node:
        """Returns the node of a value that checkpoints do not store, such as a function.

        A value that the trial's code created on startup exists again after a resume.
        """
        kind = type(value).__name__
        if self._made is None:
            self.capture.places.add(value, path, self._root)
            return {"opaque": kind}
        at = self._made.path_of(value)
        if at is None and _is_equal(self._made.at(path), value):
            at = path
        if at is not None:
            return {"opaque": kind} if at == path else {"opaque": kind, "@at": at}
        (self.capture.refused if strict else self.capture.unstored)[path] = kind
        return {"unstored": kind}

    def _read_tensor(self, value: Tensor, path: str) -> Node | None:
        is_parameter = isinstance(value, nn.Parameter)
        is_lazy = nn.parameter.is_lazy(value)
        plain = (type(value) is Tensor or is_parameter) and not is_lazy and not value.is_meta
        if not plain or value.layout is not torch.strided:
            return None
        if value.grad_fn is not None:
            self.capture.graphs.add(path)
        target = self._target(value, path, by_place=is_parameter)
        self._see(value, path)
        owner = self._storages.get(value.untyped_storage().data_ptr() if value.numel() else -1)
        if owner is not None:  # a view of the model's weights, which the loop stores
            place = [list(value.shape), list(value.stride()), value.storage_offset()]
            return {"view": [owner, *place], **target}
        self.capture.tensors.setdefault(self._root, {})[path] = value.detach()
        node: Node = {"tensor": path, **target}
        if value.device.type == "cpu" and (not value.ndim or self._device.type != "cpu"):
            node["@cpu"] = "scalar" if not value.ndim else "tensor"
        if value.is_leaf and value.requires_grad:
            node["@requires_grad"] = True
        if is_parameter:
            node["@parameter"] = True
        if value.is_leaf and value.grad is not None:
            node["@grad"] = self._node(value.grad, f"{path}.grad")
        return node

    def _read_array(self, value: np.ndarray[Any, Any], path: str) -> Node | None:
        if type(value) is not np.ndarray or value.dtype.kind not in NUMBERS:
            return None
        target = self._target(value, path, by_place=False)
        self._see(value, path)
        flat = np.frombuffer(value.tobytes(), np.uint8).copy()
        self.capture.tensors.setdefault(self._root, {})[path] = torch.from_numpy(flat)
        return {"array": [path, value.dtype.str, list(value.shape)], **target}

    def _read_tuple(self, value: Any, path: str) -> Node | None:
        kind = type(value)
        if kind in (tuple, frozenset):
            return {kind.__name__: self._items(value, path)}
        name = class_name(kind) if hasattr(kind, "_fields") else None
        return {"tuple": self._items(value, path), "@class": name} if name else None

    def _items(self, values: Iterable[Any], path: str) -> list[Node]:
        """Returns the nodes of items; sets are ordered independently of hashes."""
        ends = "{}" if isinstance(values, set | frozenset) else "[]"
        nodes = [self._node(v, f"{path}{ends[0]}{i}{ends[1]}") for i, v in enumerate(values)]
        if ends == "{}" and all(map(_has_no_identity, values)):
            nodes.sort(key=json.dumps)
        return nodes

    def _read_container(self, value: Any, path: str) -> Node | None:
        base = next(kind for kind in CONTAINERS if isinstance(value, kind))
        target = self._target(value, path, by_place=False)
        kind = type(value)
        node: Node = {}
        if kind is not base:
            name = class_name(kind) if has_known_fields(kind) else None
            factory = getattr(value, "default_factory", None)
            if target.get("@new") and (name is None or factory not in (None, *FACTORIES.values())):
                return None
            node["@class"] = name
            if isinstance(factory, type) and factory in FACTORIES.values():
                node["@factory"] = factory.__name__
        self._see(value, path)
        if base is bytearray:
            node["bytearray"] = value.hex()
        else:
            read = self._pairs if issubclass(base, dict) else self._items
            node[base.__name__] = read(value, path)
        if base is collections.deque and value.maxlen is not None:
            node["@maxlen"] = value.maxlen
        if kind is not base and is_of_user(kind):
            node |= self._fields(fields_of(value), path, target, "@fields")
        return node | target

    def _pairs(self, value: Any, path: str, *, strict: bool = True) -> list[list[Node]]:
        pairs = []
        # Bypasses an `items` overridden by a subclass.
        items = dict.items(value) if isinstance(value, dict) else value.items()
        for place, (key, item) in enumerate(items):
            name = self._node(key, f"{path}{{{place}}}.key")
            pairs.append([name, self._node(item, path_of_item(path, key, place), strict=strict)])
        return pairs

    def _read_object(self, value: Any, path: str) -> Node | None:
        generator = generator_state(value)
        if generator is not None:
            return {"generator": to_plain(generator), **self._needed(value, path)}
        if keeps_its_own_state(value):
            target = self._needed(value, path)
            if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
                self.capture.trains.add(self._root)
            return {"state": self._pairs(value.state_dict(), path, strict=False), **target}
        kind = type(value)
        if isinstance(value, Iterator) and not callable(value) and not is_of_user(kind):
            raise TrialError(_of_iterator(value, path))
        if not has_known_fields(kind) or not _can_be_made(kind):
            return None
        target = self._target(value, path, by_place=True)
        node: Node = {"@class": class_name(kind)} if "@new" in target else {}
        if None in node.values():
            return None
        self._see(value, path)
        return node | self._fields(fields_of(value), path, target, "object") | target

    def _fields(self, fields: Mapping[str, Any], path: str, target: Node, key: str) -> Node:
        """Returns the node of an object's fields, including the names of deleted fields."""
        nodes = {
            name: self._node(value, f"{path}.{name}", strict="@new" in target)
            for name, value in sorted(fields.items())
        }
        self.capture.places.fields[path] = set(fields)
        before = self._made.fields.get(target.get("@at", path), set()) if self._made else set()
        gone = sorted(before - set(fields)) if "@new" not in target else []
        return {key: nodes, "@gone": gone} if gone else {key: nodes}

    def _read_module(self, value: nn.Module, path: str) -> Node | None:
        has_tensors = any(True for _ in (*value.parameters(), *value.buffers()))
        if not has_tensors and "@new" in self._target(value, path, by_place=True):
            return None
        target = self._needed(value, path)
        content: Node = {}
        for part in PARTS_OF_MODULES:
            members = vars(value)[part]
            content[f"@{part}"] = nodes = {
                name: self._node(v, f"{path}.{name}") for name, v in members.items()
            }
            for name, v in members.items():
                if isinstance(v, nn.Parameter) and "same" in nodes[name]:
                    nodes[name]["@requires_grad"] = v.requires_grad
        own = module_attributes(value)
        if self._root == MODEL:  # the loop sets the mode of its model
            own.pop("training", None)
        return content | self._fields(own, path, target, "module") | target

    def _read_optimizer(self, value: torch.optim.Optimizer, path: str) -> Node:
        """Returns the node of an optimizer: settings, slots, pending gradients, and parameters."""
        target = self._needed(value, path)
        self.capture.trains.add(self._root)
        compared = self.capture.compared.setdefault(self._root, {})
        parameters: list[Node] = []
        settings: list[Any] = []
        for group in value.param_groups:
            own = {name: v for name, v in group.items() if name != "params"}
            settings.append(self._pairs(own, f"{path}.group{len(settings)}", strict=False))
            for parameter in group["params"]:
                place = f"{path}.{len(parameters)}"
                compared[f"{place}.weight"] = parameter.detach()
                node = {
                    "weight": self._node(parameter, f"{place}.weight"),
                    "grad": self._node(parameter.grad, f"{place}.grad"),
                    "slots": self._pairs(value.state.get(parameter, {}), place),
                }
                parameters.append(node)
        return {"optimizer": {"settings": settings, "parameters": parameters}, **target}


_READ: tuple[tuple[Any, Callable[[Reader, Any, str], Node | None]], ...] = (
    (Tensor, Reader._read_tensor),
    (np.ndarray, Reader._read_array),
    ((tuple, frozenset), Reader._read_tuple),
    (CONTAINERS, Reader._read_container),
    (torch.optim.Optimizer, Reader._read_optimizer),
    (LRScheduler, lambda reader, value, path: reader._node(value.scheduler, path)),
    (nn.Module, Reader._read_module),
)
"""Value types and their readers; other values are read as objects."""


def path_of_item(path: str, key: Any, place: int) -> str:
    """Returns the path of an item of a dict."""
    return f"{path}[{key!r}]" if type(key) in (bool, int, str) else f"{path}{{{place}}}"


def module_attributes(module: nn.Module) -> dict[str, Any]:
    """Returns a module's attributes other than parameters, buffers and submodules.

    In classes of other packages, names with an underscore are private: only numbers and tensors
    among them count as state.
    """
    own = is_of_user(type(module))
    of_torch = type(module).__module__.startswith("torch.")
    attributes = {}
    for name, value in vars(module).items():
        if name in _OF_EACH_MODULE or name.startswith("_flat_weight"):  # of torch's LSTM
            continue
        if not own and isinstance(value, Tensor) and value.grad_fn is not None:
            continue  # recomputed by weight_norm in each forward pass
        if name.startswith("_") and not own:
            number = to_node(value) is not None or isinstance(value, Tensor | np.ndarray)
            if of_torch or not number:
                continue
        attributes[name] = value
    return attributes


_OF_EACH_MODULE = {*vars(nn.Module())} - {"training"}


def keeps_its_own_state(value: Any) -> bool:
    """Returns True if a value has `state_dict` and `load_state_dict`."""
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def _has_no_identity(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_has_no_identity, value))
    return to_node(value) is not None


def _is_equal(one: Any, other: Any) -> bool:
    """Returns True if two values compare equal, such as bound methods."""
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # raised by the values' own code
        return False


def _can_be_made(kind: type[Any]) -> bool:
    """Returns True if an instance of a class can be created without calling its code."""
    try:
        new_instance(kind)
    except TypeError:  # a base class is implemented in C
        return False
    return True


def _of_iterator(value: Any, path: str) -> str:
    return (
        f"the trial keeps a {type(value).__name__} in {path}. A checkpoint cannot store how far an "
        "iterator was read, so a resumed run would read other items. Keep the items and a position "
        "instead: self.items = list(...); self.position = 0, and take self.items[self.position]. "
        "Or draw the items in the data set or the collate_fn."
    )
