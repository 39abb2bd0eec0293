"""Values nested at will: what loaders yield, models return and metrics are made of.

Containers are dicts, lists, tuples and named tuples; everything else is a leaf.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from absl import logging
from torch import Tensor

from t2t_torch.errors import TrialError

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


# Records as batches and back: the inputs of single records stacked, and outputs taken apart.


def groups(records: Sequence[Any], most: int) -> list[list[int]]:
    """Returns the numbers of records that can be a batch: nested alike, of the same shapes.

    Args:
      records: each nested at will.
      most: records of a batch.
    """
    alike: dict[Any, list[int]] = {}
    for number, record in enumerate(records):
        alike.setdefault(_kind(record), []).append(number)
    return [
        numbers[first : first + most]
        for numbers in alike.values()
        for first in range(0, len(numbers), most)
    ]


def stacked(records: Sequence[Any]) -> Any:
    """Returns records that are nested alike as a batch: each leaf with an axis more, in front.

    Args:
      records: of one of the `groups`.

    Raises:
      TrialError: a leaf is no tensor, array, number or text.
    """
    columns = [leaves(record) for record in records]
    return rebuilt(records[0], lambda name: _stack(name, [column[name] for column in columns]))


def unstacked(outputs: Any, count: int) -> list[Any]:
    """Returns what each record of a batch has of the outputs.

    Args:
      outputs: nested at will, of arrays with the records on their first axis.
      count: of records.

    Raises:
      TrialError: an output has not one row for each.
    """
    found = leaves(outputs)
    for name, leaf in found.items():
        if isinstance(leaf, np.ndarray) and leaf.shape[:1] != (count,):
            raise TrialError(
                f"forward returned {name or 'an array'} {described(leaf)} for a batch of {count}: "
                "it has no row for each record. Ask for whole batches, predictor.batch(inputs)."
            )

    def at(row: int) -> Any:
        return rebuilt(
            outputs,
            lambda name: found[name][row] if isinstance(found[name], np.ndarray) else found[name],
        )

    return [at(row) for row in range(count)]


def rebuilt(value: Any, leaf_of: Callable[[str], Any], name: str = "") -> Any:
    """Returns a value nested as another one.

    Args:
      value: the other.
      leaf_of: returns the leaf of a name, as `nested.leaves` names it.
      name: of the value itself.
    """

    def below(key: object, item: Any) -> Any:
        return rebuilt(item, leaf_of, f"{name}.{key}" if name else str(key))

    if isinstance(value, dict):
        return {key: below(key, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(below, value._fields, value))
    if isinstance(value, list | tuple):
        items = [below(place, item) for place, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return leaf_of(name)


def as_arrays(value: Any) -> Any:
    """Returns a nested value with arrays in place of its tensors."""
    found = leaves(value)

    def leaf_of(name: str) -> Any:
        leaf = found[name]
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach().cpu()
        return (leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy()

    return rebuilt(value, leaf_of)


def _kind(record: Any) -> Any:
    return tuple((name, type(leaf).__name__, _shape(leaf)) for name, leaf in leaves(record).items())


def _shape(leaf: Any) -> Any:
    if isinstance(leaf, Tensor | np.ndarray):
        return str(leaf.dtype), tuple(leaf.shape)
    return None


def _stack(name: str, column: list[Any]) -> Any:
    first = column[0]
    if isinstance(first, Tensor):
        return torch.stack(column)
    if isinstance(first, np.ndarray):
        return np.stack(column)
    if isinstance(first, np.number | np.bool_):
        return torch.from_numpy(np.stack(column))
    if isinstance(first, bool | int | float):
        return torch.tensor(column)
    if first is None:
        return None
    if isinstance(first, str | bytes):
        return column
    raise TrialError(
        f"the input {name or 'record'} is of type {type(first).__name__}; a tensor, an array, a "
        "number or a text was expected, or such in dicts, lists and tuples."
    )
