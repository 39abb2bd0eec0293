"""Values nested at will: what loaders yield, models return and metrics are made of.

Containers are dicts, lists, tuples and named tuples; everything else is a leaf.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from absl import logging
from torch import Tensor

_NUMBERS = "biufc"  # numpy's kinds that torch has too
_PLAIN = (str, bytes, bool, int, float, complex, type(None), np.generic)

_WARNED: set[type] = set()


def to_device(value: Any, device: torch.device) -> Any:
    """Returns a value with all that is in it on a device.

    Arrays of numbers become tensors of their dtype; arrays of strings or objects stay.  What has a
    method `to` of its own is moved by it.  Other leaves stay as they are; of a type that is neither
    number nor text that is said once.

    Args:
      value: nested at will; it is not changed.
      device: where to.
    """
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=device.type == "cuda")  # to a CPU it would be too soon
    if isinstance(value, np.ndarray):
        return _tensor(value).to(device) if value.dtype.kind in _NUMBERS else value
    if callable(getattr(value, "to", None)):  # PackedSequence is a tuple, and moves itself
        return value.to(device)
    if isinstance(value, dict):
        moved = copy.copy(value)  # keeps a defaultdict one
        for key, item in value.items():
            moved[key] = to_device(item, device)
        return moved
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    if isinstance(value, tuple):
        items = [to_device(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not isinstance(value, _PLAIN) and type(value) not in _WARNED:
        _WARNED.add(type(value))
        logging.warning(
            "A batch holds a %s, which stays where it is: only tensors and arrays in dicts, lists "
            "and tuples are moved to %s.",
            type(value).__name__,
            device,
        )
    return value


def leaves(value: Any) -> dict[str, Any]:
    """Returns all leaves by name, as in `0.input1.sub_input1`; one that is alone is named ''."""
    return dict(_leaves(value, ""))


def shapes(value: Any) -> list[str]:
    """Returns a line for each leaf, as in `0.input1: float32 [32, 1, 28, 28]`."""
    return [
        f"{name}: {described(leaf)}" if name else described(leaf)
        for name, leaf in _leaves(value, "")
    ]


def described(leaf: Any) -> str:
    """Says what a leaf is: dtype and shape of what has them, else the type."""
    if isinstance(leaf, Tensor | np.ndarray):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return "None" if leaf is None else type(leaf).__name__


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = list(zip(value._fields, value, strict=True))
    elif isinstance(value, list | tuple):
        items = [(str(place), item) for place, item in enumerate(value)]
    else:
        yield name, value
        return
    for key, item in items:
        yield from _leaves(item, f"{name}.{key}" if name else key)


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Returns a tensor of an array's values, in its memory where that can be."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
