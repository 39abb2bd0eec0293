"""State of a trial's attributes: stored in checkpoints, restored when a run resumes.

Only attributes that changed after their creation are stored: attributes computed from the
configuration follow changes of the configuration.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.attribute_capture import (
    FACTORIES,
    MODEL,
    PARTS_OF_MODULES,
    SCHEDULER,
    Capture,
    Node,
    Reader,
    StartupObjects,
    class_of,
    drop_field,
    fields_of,
    from_node,
    generator_state,
    has_known_fields,
    is_of_user,
    kind_of,
    new_instance,
    path_of_item,
    set_field,
    set_generator_state,
)

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World


# Restores the state of a trial's attributes into the objects that its code creates on startup.


class _Absent:
    """Placeholder for a function or another value that a checkpoint does not hold."""


ABSENT = _Absent()


class Writer:
    """Restores stored values.

    Args:
      tensors: tensors of the checkpoint, by path.
      device: device of the trial.
      made: objects created by the trial's code.

    Attributes:
      unstored: types of the values missing from the checkpoint, by path.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], device: torch.device, made: StartupObjects
    ) -> None:
        self._tensors = tensors
        self._device = device
        self._here = device  # device of new tensors
        self._made = made
        self._held = made.objects()  # keeps the objects alive until all are restored
        self._written: dict[str, Any] = {}
        self.unstored: dict[str, str] = {}

    @torch.no_grad()
    def value(self, node: Node, path: str) -> Any:
        """Returns the value of a node: the existing object, updated, or a new one.

        Raises:
          TrialError: an object, class or tensor no longer exists.
        """
        kind = kind_of(node)
        target = None if "@new" in node else self._made.at(node.get("@at", path))
        if kind in _CONTAINERS:
            return self._write_container(kind, node, path, target)
        write: Callable[[Node, str, Any], Any] | None = getattr(self, f"_write_{kind}", None)
        if write is None:
            return from_node(node, path)
        made = write(node, path, target)
        self._written.setdefault(path, made)
        return made

    def _write_same(self, node: Node, path: str, _target: Any) -> Any:
        made = self._written.get(node["same"])
        made = self._made.at(node["same"]) if made is None else made
        if made is None and node["same"].startswith(SCHEDULER):  # the loop warns of it
            return ABSENT
        if made is None:
            raise TrialError(
                f"{path} and {node['same']} were one object when the checkpoint was written, and "
                f"{node['same']} is not there now. Make it where it was made then."
            )
        if "@requires_grad" in node:
            made.requires_grad_(node["@requires_grad"])
        return made

    def _write_opaque(self, node: Node, path: str, target: Any) -> Any:
        return self._there(target, object, path, node["opaque"])

    def _write_unstored(self, node: Node, path: str, target: Any) -> Any:
        self.unstored[path] = node["unstored"]
        return ABSENT if target is None else target

    def _there(self, target: Any, kind: type[Any], path: str, name: str) -> Any:
        """Returns an object that the trial's code creates, and marks it as restored.

        Raises:
          TrialError: the code no longer creates it.
        """
        if target is None or not isinstance(target, kind):
            raise _gone(path, name)
        self._written[path] = target
        return target

    def _write_device(self, node: Node, _path: str, _target: Any) -> torch.device:
        stored = torch.device(node["device"])
        if not node["@own"]:
            return stored
        return torch.device(self._device.type) if stored.index is None else self._device

    def _write_view(self, node: Node, _path: str, target: Any) -> Tensor:
        name, shape, stride, offset = node["view"]
        owner = self._made.at(name)
        if owner is None:
            raise _gone(name, "tensor")
        made: Tensor = owner.detach().as_strided(shape, stride, offset)
        return target if _is_same_view(target, made) else made

    def _write_tensor(self, node: Node, path: str, target: Any) -> Tensor:
        stored = self._stored(node["tensor"])
        if nn.parameter.is_lazy(target):
            target.materialize(stored.shape)
        if isinstance(target, Tensor) and _fits(target, stored):
            made = target
            if torch._debug_has_internal_overlap(made) != 1:  # an expanded tensor follows its base
                made.detach().copy_(stored)
        elif isinstance(target, nn.Parameter) and "@parameter" in node:
            raise TrialError(
                f"{path} has the shape {list(target.shape)} and {target.dtype}; in the checkpoint "
                f"{list(stored.shape)} and {stored.dtype}. Make it as it was made then."
            )
        else:
            where = node.get("@cpu")
            on_cpu = where == "scalar" or (where is not None and self._here is self._device)
            device = target.device if isinstance(target, Tensor) else self._here
            made = stored.clone() if on_cpu else stored.to(device, copy=True)
            if "@parameter" in node:
                made = nn.Parameter(made, requires_grad=False)
        if made.is_leaf and (made.is_floating_point() or made.is_complex()):
            made.requires_grad_("@requires_grad" in node)
            made.grad = self.value(node["@grad"], f"{path}.grad") if "@grad" in node else None
        return made

    def _stored(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise TrialError(
                f"the checkpoint names a tensor {name} and does not hold it: it is not whole. "
                "Delete its folder; the run resumes from the one before."
            )
        return self._tensors[name]

    def _write_array(self, node: Node, _path: str, target: Any) -> Any:
        name, dtype, shape = node["array"]
        stored = np.frombuffer(self._stored(name).numpy().tobytes(), dtype).reshape(shape)
        fits = isinstance(target, np.ndarray) and target.flags.writeable and _fits(target, stored)
        if not fits:
            return stored.copy()
        target[...] = stored
        return target

    def _write_tuple(self, node: Node, path: str, _target: Any) -> Any:
        kind = class_of(node["@class"], tuple, path) if "@class" in node else tuple
        return tuple.__new__(kind, self._items(node["tuple"], path))

    def _write_frozenset(self, node: Node, path: str, _target: Any) -> Any:
        return frozenset(self._items(node["frozenset"], path, "{}"))

    def _items(self, nodes: list[Node], path: str, ends: str = "[]") -> list[Any]:
        items = [self.value(n, f"{path}{ends[0]}{i}{ends[1]}") for i, n in enumerate(nodes)]
        if any(item is ABSENT for item in items):
            raise _gone(path, "an item")
        return items

    def _pairs(self, pairs: list[list[Node]], path: str) -> list[tuple[Any, Any]]:
        made = []
        for place, (key, node) in enumerate(pairs):
            name = self.value(key, f"{path}{{{place}}}.key")
            made.append((name, self.value(node, path_of_item(path, name, place))))
        return [(name, value) for name, value in made if value is not ABSENT]

    def _write_container(self, kind: str, node: Node, path: str, target: Any) -> Any:
        base, add = _CONTAINERS[kind]
        made, maxlen = target, node.get("@maxlen")
        if not isinstance(made, base) or getattr(made, "maxlen", None) != maxlen:
            if "@class" in node and node["@class"] is None:
                raise _gone(path, base.__name__)
            made = base.__new__(class_of(node["@class"], base, path) if "@class" in node else base)
            if maxlen is not None:
                collections.deque.__init__(made, (), maxlen)
            if isinstance(made, collections.defaultdict):
                made.default_factory = FACTORIES.get(node.get("@factory", ""))
        self._written[path] = made
        self._fill(made, node.get("@fields", {}), node, path)
        content: Any = node[kind]
        if base is bytearray:
            content = bytes.fromhex(content)
        elif issubclass(base, dict):
            content = self._pairs(content, path)
        else:
            content = self._items(content, path, "{}" if base is set else "[]")
        base.clear(made)
        add(made, content)
        return made

    def _write_object(self, node: Node, path: str, target: Any) -> Any:
        made = target
        if made is None or not has_known_fields(type(made)):
            kind = class_of(node["@class"], object, path) if "@class" in node else object
            if not has_known_fields(kind):
                raise _gone(path, "object")
            made = new_instance(kind)
        self._written[path] = made
        self._fill(made, node["object"], node, path)
        return made

    def _fill(self, made: Any, nodes: Mapping[str, Node], node: Node, path: str) -> None:
        """Sets the fields of an object."""
        for name, field in sorted(nodes.items()):
            value = self.value(field, f"{path}.{name}")
            if value is not ABSENT:
                set_field(made, name, value)
        for name in node.get("@gone", ()):
            drop_field(made, name)

    def _write_module(self, node: Node, path: str, target: Any) -> Any:
        self._there(target, nn.Module, path, "module")
        for part in PARTS_OF_MODULES:
            members, nodes = vars(target)[part], node[f"@{part}"]
            for name in [name for name in members if name not in nodes]:
                del members[name]
            for name, member in nodes.items():
                members[name] = self.value(member, f"{path}.{name}")
        self._fill(target, node["module"], node, path)
        return target

    def _write_state(self, node: Node, path: str, target: Any) -> Any:
        self._there(target, object, path, "object")
        state = dict(target.state_dict())
        stored = dict(self._pairs(node["state"], path))
        target.load_state_dict({k: v for k, v in state.items() if k not in stored} | stored)
        return target

    def _write_generator(self, node: Node, path: str, target: Any) -> Any:
        if generator_state(target) is None:
            raise _gone(path, "generator of random numbers")
        try:
            set_generator_state(target, node["generator"])
        except (RuntimeError, TypeError, ValueError) as error:
            raise TrialError(
                f"{path} is a generator of another kind, or on another device, than the "
                f"checkpoint has ({error}). Make it as it was made then."
            ) from error
        return target

    def _write_optimizer(self, node: Node, path: str, target: Any) -> Any:
        self._there(target, torch.optim.Optimizer, path, "optimizer")
        content, groups = node["optimizer"], target.param_groups
        held = [parameter for group in groups for parameter in group["params"]]
        settings, parameters = content["settings"], content["parameters"]
        if len(held) != len(parameters) or len(groups) != len(settings):
            raise TrialError(
                f"{path} trains {len(held)} parameters in {len(groups)} groups, and "
                f"{len(parameters)} in {len(settings)} when the checkpoint was written. "
                "Make it as it was made then."
            )
        for place, (group, pairs) in enumerate(zip(groups, settings, strict=True)):
            own = {"params": group["params"], **dict(self._pairs(pairs, f"{path}.group{place}"))}
            group.clear()
            group.update(own)
        for place, (parameter, stored) in enumerate(zip(held, parameters, strict=True)):
            self._here = parameter.device
            self.value(stored["weight"], f"{path}.{place}.weight")
            parameter.grad = self.value(stored["grad"], f"{path}.{place}.grad")
            slots = dict(self._pairs(stored["slots"], f"{path}.{place}"))
            self._here = self._device
            if slots:
                target.state[parameter] = slots
            else:
                target.state.pop(parameter, None)
        return target


def _set_items(made: Any, pairs: list[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        collections.OrderedDict.__setitem__(made, key, value)  # not the method of a subclass


_CONTAINERS: dict[str, tuple[Any, Callable[[Any, Any], None]]] = {
    "list": (list, list.extend),
    "deque": (collections.deque, collections.deque.extend),
    "set": (set, set.update),
    "bytearray": (bytearray, bytearray.extend),
    "dict": (dict, dict.update),
    "OrderedDict": (collections.OrderedDict, _set_items),
}
"""Kind of a node -> container type, and its insertion method, regardless of overrides."""


def _fits(made: Any, stored: Any) -> bool:
    return bool(made.shape == stored.shape and made.dtype == stored.dtype)


def _is_same_view(one: Any, other: Tensor) -> bool:
    if not isinstance(one, Tensor) or one.data_ptr() != other.data_ptr():
        return False
    return one.shape == other.shape and one.stride() == other.stride()


def _gone(path: str, kind: str) -> TrialError:
    return TrialError(
        f"the checkpoint holds the state of {path} ({kind}), and the trial does not make it any "
        "more. Make it where it was made then: in __init__, build_model or optimizer."
    )


_SELF = "self."
_DELETED = "deleted"


class _Value(NamedTuple):
    """Value of an attribute in one process."""

    node: Node
    digest: str
    has_tensors: bool


class AttributeState:
    """State of the attributes of a trial and of its model, apart from the model's weights.

    Args:
      trial: instance of the trial class; its optimizer has been created.
      model: model of the trial.
      optimizer: optimizer that the loop steps.
      schedulers: function that returns the schedulers stored elsewhere.
      what: name of the trial, for error messages.

    Attributes:
      model: model of the trial.
    """

    def __init__(
        self,
        trial: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedulers: Callable[[], list[Any]],
        what: str,
    ) -> None:
        self._trial = trial
        self.model = model
        self._optimizer = optimizer
        self._schedulers = schedulers
        self._what = what
        self._device = next(model.parameters()).device
        self._warned: set[str] = set()
        self._owners: dict[str, Any] = {"self": trial}  # and its classes, by unique names
        names: collections.Counter[str] = collections.Counter()
        for kind in filter(is_of_user, type(trial).__mro__):
            name, taken = kind.__name__, names[kind.__name__]
            self._owners[f"{name}#{taken}" if taken else name] = kind
            names[name] += 1
        self._made: StartupObjects | None = None
        made = self._read()
        self._made, self._digests = made.places, made.digests()

    def _owner(self, name: str) -> tuple[Any, str]:
        """Returns the owner of an attribute, and the attribute's name in the owner."""
        owner, _, own = name.rpartition(".")
        return self._owners.get(owner), own

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the trial and its classes, by path."""
        own: dict[str, Any] = {}
        for label, owner in self._owners.items():
            values = fields_of(owner) if owner is self._trial else _values_of(owner)
            own |= {f"{label}.{name}": value for name, value in values.items()}
        return dict(sorted(own.items(), key=lambda item: _order(item[0])))

    def _set(self, name: str, value: Any) -> None:
        owner, own = self._owner(name)
        if owner is None:
            raise TrialError(
                f"{self._what}: the checkpoint holds {name}, and the trial has no such class any "
                "more. Give the class its name again."
            )
        if owner is self._trial:
            set_field(owner, own, value)
        elif vars(owner).get(own, ABSENT) is not value:
            setattr(owner, own, value)

    def _drop(self, name: str) -> None:
        owner, own = self._owner(name)
        if owner is self._trial:
            drop_field(owner, own)
        elif own in vars(owner):
            delattr(owner, own)

    def _read(self, *, replace_all: bool = False) -> Capture:
        """Returns the values of all attributes.

        Args:
          replace_all: whether to treat the current objects as those created on startup.

        Raises:
          TrialError: a value cannot be stored, and a resumed run would differ.
        """
        known: dict[str, Any] = {"self": self._trial, "optimizer()": self._optimizer}
        known |= {f"{SCHEDULER}{n}": one for n, one in enumerate(self._schedulers())}
        for place, module in self.model.named_modules(prefix=MODEL):
            known |= {
                f"{place}.{name}": tensor
                for name, tensor in (
                    *vars(module)["_parameters"].items(),
                    *vars(module)["_buffers"].items(),
                )
                if tensor is not None and name not in module._non_persistent_buffers_set
            }
        reader = Reader(known, self._device, None if replace_all else self._made)
        try:
            reader.read(MODEL, self.model)
            for name, value in self._attributes().items():
                reader.read(name, value)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        return reader.capture

    def check(self) -> None:
        """Checks that a resumed run can restore all values.

        Raises:
          TrialError: training or an evaluation created an optimizer, a generator or a similar
            object.
        """
        self._check(self._read())

    def _check(self, capture: Capture) -> None:
        if capture.late:
            raise TrialError(
                f"{self._what}: {_listed(capture.late)} was made during training. A run that "
                "resumes could not put its state back, as it would not be there yet. Make it in "
                "__init__, build_model or optimizer."
            )
        if capture.refused:
            raise TrialError(
                f"{self._what}: a checkpoint cannot store {_listed(capture.refused)}, and a run "
                "that resumes could not leave it out. Keep numbers, strings, tensors, arrays, "
                "containers of these or objects of the trial's own classes there."
            )
        for path, kind in capture.unstored.items():
            self._warn(
                path,
                f"({kind}) is not stored in checkpoints: a run that resumes has what the trial's "
                "code makes in its place",
            )
        for path in capture.graphs:
            self._warn(
                path,
                "has a grad_fn: checkpoints store its numbers without the graph. Keep "
                "tensor.detach()",
            )

    def state(self, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the changed values in JSON form, and their tensors; a collective call.

        Values that differ between processes are stored per process; for tensors, the leader's are
        stored.

        Raises:
          TrialError: an optimizer or a scheduler differs between processes; or see `check`.
        """
        capture = self._read()
        self._check(capture)
        gathered = world.gather(self._changed(capture))
        processes = [{name: _Value(*v) for name, v in one.items()} for one in gathered]
        stored: dict[str, Any] = {}
        for name in {name: None for one in processes for name in one}:
            values = [one.get(name) for one in processes]
            leaders = values[0]
            is_same = leaders and all(v and v.digest == leaders.digest for v in values)
            if not is_same:
                if name in capture.trains:
                    raise TrialError(
                        f"{self._what}: {name}, or the weights that it trains, differs between the "
                        "processes: only gradients of the loss that the trial returns are "
                        "averaged. Train it in one process, or average its gradients "
                        "(torch.distributed) before its step."
                    )
                if not any(v and v.has_tensors for v in values):
                    stored[name] = {"each": [v and v.node for v in values]}
                    continue
                self._warn(name, "differs between processes, and the leader's is stored")
            if leaders:
                stored[name] = {"all": leaders.node}
        tensors = {p: t for name in stored for p, t in capture.tensors.get(name, {}).items()}
        return stored, tensors

    def _changed(self, capture: Capture) -> dict[str, _Value]:
        """Returns the changed attributes, and those that reference the same objects."""
        digests = capture.digests()
        names = {name for name, digest in digests.items() if digest != self._digests.get(name)}
        before = -1
        while len(names) != before:
            before = len(names)
            names |= {name for name, to in capture.aliases.items() if to & names}
            names |= {root for name in names for root in capture.moved.get(name, ())} & {*digests}
        changed = {
            name: _Value(capture.nodes[name], digests[name], name in capture.tensors)
            for name in digests
            if name in names
        }
        gone = self._digests.keys() - digests.keys()
        return changed | {name: _Value({_DELETED: True}, _DELETED, False) for name in sorted(gone)}

    def restore(self, stored: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int) -> None:
        """Restores the result of `state`.

        Raises:
          TrialError: an object no longer exists, or has another type.
        """
        assert self._made is not None
        writer = Writer(tensors, self._device, self._made)
        for name, value in sorted(stored.items(), key=lambda item: _order(item[0])):
            each = value.get("each")
            if each is not None and rank >= len(each):
                self._warn(name, f"was stored for {len(each)} processes, and the first's is taken")
            node = value["all"] if each is None else each[rank if rank < len(each) else 0]
            if node is not None:
                self._write(writer, name, node)
        for path, kind in writer.unstored.items():
            self._warn(
                path, f"({kind}) is not in the checkpoint: it is as the trial's code made it"
            )

    def _write(self, writer: Writer, name: str, node: Node) -> None:
        if _DELETED in node:
            self._drop(name)
            return
        try:
            value = writer.value(node, name)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        if name != MODEL and value is not ABSENT:
            self._set(name, value)

    @contextlib.contextmanager
    def preserved(self) -> Iterator[None]:
        """Restores all attributes and their contents on exit."""
        undo = self.remember()
        try:
            yield
        finally:
            undo()

    def remember(self) -> Callable[[], None]:
        """Returns a function that restores the current values of all attributes."""
        before = self._read(replace_all=True)
        tensors = {p: t.clone() for own in before.tensors.values() for p, t in own.items()}

        def undo() -> None:
            for name in self._attributes().keys() - before.nodes.keys():
                self._drop(name)
            writer = Writer(tensors, self._device, before.places)
            for name, node in before.nodes.items():
                self._write(writer, name, node)

        return undo

    def _warn(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("%s: %s %s", self._what, name, message)


def _values_of(kind: type[Any]) -> dict[str, Any]:
    """Returns the attributes of a class that are not methods or descriptors."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("__") and not hasattr(type(value), "__get__")
    }


def _order(name: str) -> tuple[bool, bool, str]:
    """Sort key for reading attributes: an alias comes after the object that it references."""
    return name != MODEL, not name.startswith(_SELF), name


def _listed(types: Mapping[str, str]) -> str:
    return ", ".join(f"{path} ({kind})" for path, kind in sorted(types.items()))
