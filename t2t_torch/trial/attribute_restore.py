"""The state of a trial's attributes, put back into the objects that its code makes at the start."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.attribute_capture import (
    FACTORIES,
    PARTS_OF_MODULES,
    SCHEDULER,
    Made,
    generator_state,
    path_of_item,
)
from t2t_torch.trial.attribute_values import (
    Node,
    class_of,
    drop_field,
    from_node,
    has_known_fields,
    kind_of,
    new_instance,
    set_field,
)
from t2t_torch.trial.plain_state import from_plain


class _Absent:
    """The value of a function or the like, which a checkpoint does not hold."""


ABSENT = _Absent()


class Writer:
    """Puts stored values back.

    Args:
      tensors: of the checkpoint, by their path.
      device: where the trial computes.
      made: the objects that the trial's code has made.

    Attributes:
      unstored: types of values that the checkpoint does not hold, by their path.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device, made: Made) -> None:
        self._tensors = tensors
        self._device = device
        self._here = device  # of new tensors
        self._made = made
        self._held = made.objects()  # until the last of them has its new place
        self._found: dict[str, Any] = {}
        self.unstored: dict[str, str] = {}

    @torch.no_grad()
    def value(self, node: Node, path: str) -> Any:
        """Returns the value of a node: the object that is there, filled, or a new one.

        Raises:
          TrialError: an object, a class or a tensor is not there any more.
        """
        kind = kind_of(node)
        writer: Callable[[Node, str, Any], Any] | None = getattr(self, f"_write_{kind}", None)
        if writer is None:
            return from_node(node, path)
        return writer(node, path, None if "@new" in node else self._made.at(node.get("@at", path)))

    def _write_same(self, node: Node, path: str, target: Any) -> Any:
        del target
        found = self._found.get(node["same"])
        found = self._made.at(node["same"]) if found is None else found
        if found is None and node["same"].startswith(SCHEDULER):  # the loop warns of it
            return ABSENT
        if found is None:
            raise TrialError(
                f"{path} and {node['same']} were one object when the checkpoint was written, and "
                f"{node['same']} is not there now. Make it where it was made then."
            )
        if "@requires_grad" in node:
            found.requires_grad_(node["@requires_grad"])
        return found

    def _write_opaque(self, node: Node, path: str, target: Any) -> Any:
        if target is None:
            raise _gone(path, node["opaque"])
        return target

    def _write_unstored(self, node: Node, path: str, target: Any) -> Any:
        self.unstored[path] = node["unstored"]
        return ABSENT if target is None else target

    def _write_device(self, node: Node, path: str, target: Any) -> torch.device:
        del path, target
        stored = torch.device(node["device"])
        if not node["@own"]:
            return stored
        return torch.device(self._device.type) if stored.index is None else self._device

    def _write_view(self, node: Node, path: str, target: Any) -> Tensor:
        name, shape, stride, offset = node["view"]
        owner = self._made.at(name)
        if owner is None:
            raise _gone(name, "tensor")
        made: Tensor = owner.detach().as_strided(shape, stride, offset)
        if _is_same_view(target, made):
            made = target
        self._found[path] = made
        return made

    def _write_tensor(self, node: Node, path: str, target: Any) -> Tensor:
        stored = self._stored(node["tensor"])
        if nn.parameter.is_lazy(target):
            target.materialize(stored.shape)
        if isinstance(target, Tensor) and _fits(target, stored):
            made = target
            if torch._debug_has_internal_overlap(made) != 1:  # an expanded one follows its base
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
        self._found[path] = made
        return made

    def _stored(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise TrialError(
                f"the checkpoint names a tensor {name} and does not hold it: it is not whole. "
                "Delete its folder; the run resumes from the one before."
            )
        return self._tensors[name]

    def _write_array(self, node: Node, path: str, target: Any) -> Any:
        name, dtype, shape = node["array"]
        stored = np.frombuffer(self._stored(name).numpy().tobytes(), dtype).reshape(shape)
        made = target
        if not isinstance(made, np.ndarray) or not made.flags.writeable or not _fits(made, stored):
            made = stored.copy()
        else:
            made[...] = stored
        self._found[path] = made
        return made

    def _write_tuple(self, node: Node, path: str, target: Any) -> Any:
        del target
        name = node.get("@class")
        kind = class_of(name, tuple, path) if name else tuple
        return tuple.__new__(kind, self._items(node["tuple"], path))

    def _write_frozenset(self, node: Node, path: str, target: Any) -> Any:
        del target
        return frozenset(self._items(node["frozenset"], path, "{}"))

    def _items(self, nodes: list[Node], path: str, ends: str = "[]") -> list[Any]:
        items = [self.value(n, f"{path}{ends[0]}{i}{ends[1]}") for i, n in enumerate(nodes)]
        if any(item is ABSENT for item in items):
            raise _gone(path, "an item")
        return items

    def _pairs(self, pairs: list[list[Node]], path: str) -> list[tuple[Any, Any]]:
        found = []
        for place, (key, node) in enumerate(pairs):
            name = self.value(key, f"{path}{{{place}}}.key")
            found.append((name, self.value(node, path_of_item(path, name, place))))
        return [(name, value) for name, value in found if value is not ABSENT]

    def _container(self, node: Node, path: str, target: Any, base: type[Any]) -> Any:
        """Returns the container of a place, or a new one that is empty; fields are filled."""
        made, maxlen = target, node.get("@maxlen")
        if not isinstance(made, base) or getattr(made, "maxlen", None) != maxlen:
            if "@class" in node and node["@class"] is None:
                raise _gone(path, base.__name__)
            kind = class_of(node["@class"], base, path) if "@class" in node else base
            made = base.__new__(kind)  # type: ignore[call-overload]
            if maxlen is not None:
                collections.deque.__init__(made, (), maxlen)
            if isinstance(made, collections.defaultdict):
                made.default_factory = FACTORIES.get(node.get("@factory", ""))
        self._found[path] = made
        if "@fields" in node:
            self._fill(made, node["@fields"], node, path)
        return made

    def _write_list(self, node: Node, path: str, target: Any) -> Any:
        made = self._container(node, path, target, list)
        items = self._items(node["list"], path)
        list.clear(made)
        list.extend(made, items)
        return made

    def _write_deque(self, node: Node, path: str, target: Any) -> Any:
        made = self._container(node, path, target, collections.deque)
        items = self._items(node["deque"], path)
        collections.deque.clear(made)
        collections.deque.extend(made, items)
        return made

    def _write_set(self, node: Node, path: str, target: Any) -> Any:
        made = self._container(node, path, target, set)
        items = self._items(node["set"], path, "{}")
        set.clear(made)
        set.update(made, items)
        return made

    def _write_bytearray(self, node: Node, path: str, target: Any) -> Any:
        made = self._container(node, path, target, bytearray)
        made[:] = bytes.fromhex(node["bytearray"])
        return made

    def _write_dict(self, node: Node, path: str, target: Any) -> Any:
        return self._mapping(node["dict"], path, self._container(node, path, target, dict), dict)

    def _write_OrderedDict(self, node: Node, path: str, target: Any) -> Any:
        base = collections.OrderedDict
        made = self._container(node, path, target, base)
        return self._mapping(node["OrderedDict"], path, made, base)

    def _mapping(self, pairs: list[list[Node]], path: str, made: Any, base: type[Any]) -> Any:
        found = self._pairs(pairs, path)
        base.clear(made)
        for key, value in found:
            base.__setitem__(made, key, value)  # not that of a subclass, which may do more
        return made

    def _write_object(self, node: Node, path: str, target: Any) -> Any:
        made = target
        if made is None or not has_known_fields(type(made)):
            kind = class_of(node["@class"], object, path) if "@class" in node else object
            if not has_known_fields(kind):
                raise _gone(path, "object")
            made = new_instance(kind)
        self._found[path] = made
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
        if not isinstance(target, nn.Module):
            raise _gone(path, "module")
        self._found[path] = target
        for part in PARTS_OF_MODULES:
            members, nodes = vars(target)[part], node[f"@{part}"]
            for name in [name for name in members if name not in nodes]:
                del members[name]
            for name, member in nodes.items():
                members[name] = self.value(member, f"{path}.{name}")
        self._fill(target, node["module"], node, path)
        return target

    def _write_state(self, node: Node, path: str, target: Any) -> Any:
        if target is None:
            raise _gone(path, "object")
        self._found[path] = target
        state = dict(target.state_dict())
        found = dict(self._pairs(node["state"], path))
        target.load_state_dict({k: v for k, v in state.items() if k not in found} | found)
        return target

    def _write_generator(self, node: Node, path: str, target: Any) -> Any:
        if generator_state(target) is None:
            raise _gone(path, "generator of random numbers")
        try:
            _set_generator(target, node["generator"])
        except (RuntimeError, TypeError, ValueError) as error:
            raise TrialError(
                f"{path} is a generator of another kind, or on another device, than the "
                f"checkpoint has ({error}). Make it as it was made then."
            ) from error
        self._found[path] = target
        return target

    def _write_optimizer(self, node: Node, path: str, target: Any) -> Any:
        if not isinstance(target, torch.optim.Optimizer):
            raise _gone(path, "optimizer")
        self._found[path] = target
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


def _set_generator(made: Any, known: Any) -> None:
    if isinstance(made, torch.Generator):
        made.set_state(torch.tensor(list(bytes.fromhex(known)), dtype=torch.uint8))
    elif isinstance(made, np.random.Generator):
        state, spawned = known
        made.bit_generator.state = from_plain(made.bit_generator.state, state)
        seeds: Any = made.bit_generator.seed_seq
        more = spawned - getattr(seeds, "n_children_spawned", spawned)
        if more > 0:
            seeds.spawn(more)  # only forwards: it cannot be set
    elif isinstance(made, np.random.BitGenerator):
        made.state = from_plain(made.state, known)
    elif isinstance(made, np.random.RandomState):
        made.set_state(from_plain(made.get_state(legacy=False), known))
    else:
        made.setstate(from_plain(made.getstate(), known))


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
