"""Immutable values of a trial's attributes as JSON, and the classes that a checkpoint names.

A class is named as `module:Class` and is looked up among the modules that are imported already.
Nothing is imported or called by a name that stands in a checkpoint.
"""

from __future__ import annotations

import argparse
import collections
import enum
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from t2t_torch.errors import TrialError
from t2t_torch.trial.plain_state import from_plain, to_plain

Node = dict[str, Any]
"""A stored value: its kind and its content.  Keys that begin with "@" qualify it."""

NUMBERS = "biufcmMSU"
"""The kinds of numpy's dtypes whose bytes are the whole value."""

_OF_PYTHON = (
    *(collections.OrderedDict, collections.Counter, collections.defaultdict),
    *(types.SimpleNamespace, argparse.Namespace),
)


def to_node(value: Any) -> Node | None:
    """Returns the node of an immutable value without parts; None of any other."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return {"plain": to_plain(value)}
    if isinstance(value, enum.Enum):
        name = class_name(kind)
        if name is None:
            return None
        if isinstance(value, enum.Flag):  # members can be combined, and have no name then
            return {"flag": [name, value.value]}
        return {"enum": [name, value.name]}
    if isinstance(value, np.generic):
        if value.dtype.kind not in NUMBERS:
            return None
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
    if isinstance(value, range | slice):
        parts = [value.start, value.stop, value.step]
        if all(part is None or type(part) is int for part in parts):
            return {kind.__name__: parts}
    return None


def from_node(node: Node, path: str) -> Any:
    """Returns the value of a node that `to_node` made.

    Args:
      node: of an immutable value.
      path: of the attribute, for errors.

    Raises:
      TrialError: an enumeration is gone, or has no such member any more.
    """
    kind = kind_of(node)
    if kind not in _MADE:
        raise TrialError(
            f"the checkpoint holds {path} in a form ({kind!r}) that this version does not read. "
            "Resume with the version that wrote it."
        )
    return _MADE[kind](node[kind], path)


def kind_of(node: Node) -> str:
    """Returns a node's kind."""
    return next(key for key in node if not key.startswith("@"))


def _enum(content: list[Any], path: str) -> Any:
    kind = class_of(content[0], enum.Enum, path)
    if content[1] not in kind.__members__:
        raise TrialError(
            f"the checkpoint holds {path} = {kind.__name__}.{content[1]}, and {kind.__name__} has "
            f"only {', '.join(kind.__members__)} now. Add the member again."
        )
    return kind[content[1]]


def _flag(content: list[Any], path: str) -> Any:
    kind = class_of(content[0], enum.Flag, path)
    try:
        return kind(content[1])
    except ValueError:
        raise TrialError(
            f"the checkpoint holds {path} = {content[1]}, which is no value of {kind.__name__} "
            f"({', '.join(kind.__members__)}) any more. Add the member again."
        ) from None


def _number(content: list[str], path: str) -> Any:
    del path
    dtype, data = np.dtype(content[0]), bytes.fromhex(content[1])
    return np.frombuffer(data, dtype)[0] if dtype.itemsize else np.zeros((), dtype)[()]


_MADE: dict[str, Callable[[Any, str], Any]] = {
    "plain": lambda content, path: from_plain(None, content),
    "enum": _enum,
    "flag": _flag,
    "number": _number,
    "complex": lambda content, path: complex(*(from_plain(None, part) for part in content)),
    "bytes": lambda content, path: bytes.fromhex(content),
    "size": lambda content, path: torch.Size(content),
    "dtype": lambda content, path: getattr(torch, content),
    "path": lambda content, path: Path(content),
    "range": lambda content, path: range(*content),
    "slice": lambda content, path: slice(*content),
}


def class_name(kind: type[Any]) -> str | None:
    """Returns the name by which `class_of` finds a class; None if it does not."""
    module = sys.modules.get(kind.__module__)
    if _at(module, kind.__qualname__) is kind:
        return f"{kind.__module__}:{kind.__qualname__}"
    for name, value in vars(module).items() if module else ():  # a namedtuple under another name
        if value is kind:
            return f"{kind.__module__}:{name}"
    return None


def class_of(name: str, base: type[Any], path: str) -> Any:
    """Returns the class that `class_name` named.

    Args:
      name: of the class.
      base: which it must be a subclass of.
      path: of the attribute, for errors.

    Raises:
      TrialError: it is gone, or it is another kind of class now.
    """
    module, _, place = name.partition(":")
    # A file whose name another module has is imported as trial_<name>.
    for known in (module, f"trial_{module}", module.removeprefix("trial_")):
        found = _at(sys.modules.get(known), place)
        if isinstance(found, type) and issubclass(found, base):
            return found
    raise TrialError(
        f"the checkpoint holds a {place} in {path}, and {module} has no such class any more. "
        "Define it where it was defined when the checkpoint was written."
    )


def _at(module: Any, place: str) -> Any:
    for part in place.split("."):
        module = getattr(module, part, None)
    return module


def is_of_user(kind: type[Any]) -> bool:
    """Whether a class is neither Python's nor an installed package's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file or kind.__module__.split(".")[0] in {*sys.stdlib_module_names, "t2t_torch"}:
        return False
    return "site-packages" not in file and "dist-packages" not in file


def has_known_fields(kind: type[Any]) -> bool:
    """Whether all that an instance holds is in its fields, or it is a container of Python."""
    return kind in _OF_PYTHON or is_of_user(kind)


def new_instance(kind: type[Any]) -> Any:
    """Returns an instance without fields; `__init__` is not called.

    Raises:
      TypeError: it is a subclass of a class that is written in C.
    """
    if kind is types.SimpleNamespace:
        return types.SimpleNamespace()
    return object.__new__(kind)


def fields_of(value: Any) -> dict[str, Any]:
    """Returns what an instance holds in its `__dict__` and its `__slots__`."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            hidden = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if hidden else slot
            if isinstance(vars(kind).get(name), types.MemberDescriptorType) and hasattr(
                value, name
            ):
                found[name] = getattr(value, name)
    found.update(getattr(value, "__dict__", {}))
    return {n: v for n, v in found.items() if not (n.startswith("__") and n.endswith("__"))}


def set_field(owner: Any, name: str, value: Any) -> None:
    """Sets a field, also of a frozen dataclass and past a `__setattr__`."""
    if isinstance(getattr(type(owner), name, None), types.MemberDescriptorType):
        object.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def drop_field(owner: Any, name: str) -> None:
    """Deletes a field, if it is there."""
    if isinstance(getattr(type(owner), name, None), types.MemberDescriptorType):
        if hasattr(owner, name):
            object.__delattr__(owner, name)
    else:
        vars(owner).pop(name, None)
