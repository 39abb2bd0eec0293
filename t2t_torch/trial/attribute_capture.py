"""The state that a trial's own code keeps: what its attributes hold, as a checkpoint stores it.

A GAN keeps a second optimizer on the trial, others a running mean of the weights, a generator of
random numbers, a counter.  The trial's code makes these anew at each start.  What has changed since
is stored, JSON and tensors apart, and put back into the objects that are there after a resume.

Attributes are followed through lists, tuples, dicts, modules and objects of the user's own classes.
Data sets, loaders, functions and classes are left alone, and so is whatever belongs to the model
or the optimizer that the loop itself saves.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.lr_scheduler import LRScheduler
from t2t_torch.trial.plain_state import NOT_PLAIN, to_plain

_OWN_OF_MODULES = ("_parameters", "_buffers", "_modules")
_LEFT_ALONE = (
    *(ModuleType, type, io.IOBase, torch.utils.data.DataLoader, torch.utils.data.Dataset),
    *(torch.utils.data.Sampler, torch.device, torch.dtype),
)
_DEEPEST = 40  # levels of nesting; deeper objects are not state but a linked structure

Node = dict[str, Any]
"""A stored value: a mapping of one key, its kind, to its content."""


@dataclasses.dataclass
class Capture:
    """The values of all attributes at one time.

    Attributes:
      nodes: each attribute's value, by name.
      tensors: that the nodes name, themselves, by their path.
      objects: the types of all objects by path.
      needed: the paths of objects that a checkpoint can only fill, not make.
      compared: tensors that are not stored but decide whether an attribute changed.
      trains: the names of attributes that hold an optimizer or a scheduler.
    """

    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    objects: dict[str, str] = dataclasses.field(default_factory=dict)
    needed: set[str] = dataclasses.field(default_factory=set)
    compared: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    trains: set[str] = dataclasses.field(default_factory=set)

    def below(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of one attribute."""
        return {
            path: tensor
            for path, tensor in tensors.items()
            if path == name or path.startswith((f"{name}.", f"{name}["))
        }

    def digests(self) -> dict[str, str]:
        """Returns a hash of each attribute's value."""
        found = {}
        for name, node in self.nodes.items():
            value = hashlib.sha256(json.dumps(node, sort_keys=True).encode())
            for path, tensor in self.below(name, {**self.compared, **self.tensors}).items():
                value.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
                flat = tensor.detach().cpu().contiguous().reshape(-1)
                value.update(flat.view(torch.uint8).numpy().data)
            found[name] = value.hexdigest()
        return found


class Reader:
    """Reads the attributes of a trial.

    Args:
      known: objects and tensors that the loop saves itself: the model, the optimizer.
      storages: of the model's tensors; a view of one is not stored twice.
    """

    def __init__(self, known: Iterable[object], storages: Iterable[int]) -> None:
        self.found = Capture()
        self._seen = {id(thing): thing for thing in known}  # held, or another takes over the id
        self._storages = frozenset(storages)
        self._root = ""

    def read(self, name: str, value: Any) -> None:
        """Adds an attribute."""
        self._root = name
        node = self._node(value, name, 0)
        if node is not None:
            self.found.nodes[name] = node

    def _node(self, value: Any, path: str, depth: int) -> Node | None:
        """Returns a value's node; None if it is no state."""
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            native = value.astype(value.dtype.newbyteorder("="), order="C", copy=True)
            self.found.tensors[path] = torch.from_numpy(native)
            return {"array": path}
        if isinstance(value, bool | int | float | str | np.generic | type(None)):
            return {"plain": to_plain(value)}
        if isinstance(value, _LEFT_ALONE) or depth > _DEEPEST:
            return None
        generator = generator_state(value)
        if generator is not None:
            self._note(value, path)
            return {"generator": to_plain(generator)}
        if id(value) in self._seen:
            return None
        self._seen[id(value)] = value
        if isinstance(value, list | tuple | collections.deque):
            items = [self._node(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
            return {"list": items}
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth)
        return self._object(value, path, depth)

    def _tensor(self, value: Tensor, path: str) -> Node | None:
        if id(value) in self._seen or value.layout is not torch.strided:
            return None
        if value.grad_fn is not None:  # computed in a pass, and not state
            return None
        if nn.parameter.is_lazy(value):
            return None
        if value.numel() and value.untyped_storage().data_ptr() in self._storages:
            return None
        self._seen[id(value)] = value
        self.found.tensors[path] = value.detach()
        return {"tensor": path, "scalar_on_cpu": not value.ndim and value.device.type == "cpu"}

    def _mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> Node:
        pairs = []
        for key, item in value.items():
            said = to_plain(key)
            if said is not NOT_PLAIN:
                pairs.append([said, self._node(item, f"{path}[{key!r}]", depth + 1)])
        return {"map": pairs}

    def _object(self, value: Any, path: str, depth: int) -> Node | None:
        if isinstance(value, torch.optim.Optimizer):
            return self._optimizer(value, path, depth)
        if isinstance(value, LRScheduler):
            return self._node(value.scheduler, path, depth)
        if isinstance(value, nn.Module):
            return self._fields(module_fields(value), value, path, depth)
        if keeps_its_own_state(value):
            self._note(value, path)
            if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
                self.found.trains.add(self._root)
            return {"state": self._mapping(value.state_dict(), path, depth + 1)}
        if isinstance(value, Iterator) and not callable(value):
            raise TrialError(
                f"the trial keeps a {type(value).__name__} in {path}: how far it was read cannot "
                "be stored in a checkpoint, so a resumed run would read other items. Keep a list "
                "and a counter, or draw the items in the data set or the collate_fn."
            )
        if is_of_user(type(value)):
            return self._fields(vars(value), value, path, depth)
        return None

    def _fields(self, fields: Mapping[str, Any], owner: Any, path: str, depth: int) -> Node | None:
        before = len(self.found.tensors)
        self.found.objects[path] = type(owner).__name__
        nodes = {name: self._node(v, f"{path}.{name}", depth + 1) for name, v in fields.items()}
        if len(self.found.tensors) > before:
            self.found.needed.add(path)
        return {"object": {name: node for name, node in nodes.items() if node is not None}}

    def _note(self, value: Any, path: str) -> None:
        self.found.objects[path] = type(value).__name__
        self.found.needed.add(path)

    def _optimizer(self, value: torch.optim.Optimizer, path: str, depth: int) -> Node:
        """Settings, slots, gradients that wait for a step, and parameters that nobody else has."""
        self._note(value, path)
        self.found.trains.add(self._root)
        parameters: list[Node] = []
        settings: list[Node] = []
        for group in value.param_groups:
            own = {name: v for name, v in group.items() if name != "params"}
            settings.append(self._mapping(own, f"{path}.group{len(settings)}", depth))
            for parameter in group["params"]:
                place = f"{path}.{len(parameters)}"
                self.found.compared[f"{place}.weight"] = parameter.detach()
                node = {
                    "weight": self._tensor(parameter, f"{place}.weight"),
                    "grad": self._node(parameter.grad, f"{place}.grad", depth + 1),
                    "slots": self._mapping(value.state.get(parameter, {}), place, depth),
                }
                parameters.append(node)
        return {"optimizer": {"settings": settings, "parameters": parameters}}


def module_fields(module: nn.Module) -> dict[str, Any]:
    """Returns what a module keeps: parameters, buffers, modules, and attributes of its own."""
    fields: dict[str, Any] = {}
    for own in _OWN_OF_MODULES:
        fields.update(vars(module)[own])
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training":
            fields[name] = value
    return fields


def keeps_its_own_state(value: Any) -> bool:
    """Whether a value has `state_dict` and `load_state_dict`."""
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def is_of_user(kind: type[Any]) -> bool:
    """Whether a class is neither Python's nor an installed package's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file or kind.__module__.split(".")[0] in {*sys.stdlib_module_names, "t2t_torch"}:
        return False
    return "site-packages" not in file and "dist-packages" not in file


def generator_state(value: Any) -> Any:
    """Returns the state of a generator of random numbers; None of anything else."""
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().tolist()).hex()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random):
        return value.getstate()
    return None
