"""Nested values: batches of loaders, outputs of models, and metrics.

Containers are dicts, lists, tuples and named tuples; all other values are leaves.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from absl import logging
from torch import Tensor

from t2t_torch.errors import TrialError

_NUMBERS = "biufc"  # numpy dtype kinds that torch supports
_PLAIN = (str, bytes, bool, int, float, complex, type(None), np.generic)


def mapped(
    value: Any,
    function: Callable[[str, Any], Any],
    *,
    is_leaf: Callable[[Any], bool] = lambda _: False,
    name: str = "",
) -> Any:
    """Returns a value with the same nesting and the results of a function as leaves.

    Args:
      value: arbitrarily nested value; it is not modified.
      function: function of the name of a leaf, such as `0.input1.sub_input1`, and the leaf.
      is_leaf: predicate for containers to be treated as leaves.
      name: name of the value itself.
    """
    parts = None if is_leaf(value) else _parts(value)
    if parts is None:
        return function(name, value)
    items = [
        mapped(item, function, is_leaf=is_leaf, name=f"{name}.{key}" if name else key)
        for key, item in parts
    ]
    if isinstance(value, dict):
        made = copy.copy(value)  # preserves a defaultdict
        for key, item in zip(value, items, strict=True):
            made[key] = item
        return made
    if isinstance(value, list):
        return items
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Returns the items of a container by name; None for a leaf."""
    if isinstance(value, dict):
        return [(str(key), item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return [(str(place), item) for place, item in enumerate(value)]
    return None


def leaves(value: Any) -> dict[str, Any]:
    """Returns all leaves by name, such as `0.input1.sub_input1`; a single leaf is named ''."""
    named: dict[str, Any] = {}
    mapped(value, named.setdefault)
    return named


def fill(like: Any, named: Mapping[str, Any], alone: str) -> Any:
    """Returns a value nested like another, with leaves by name; None for others.

    Args:
      like: nested value.
      named: leaves by name.
      alone: name of a leaf that is not nested.
    """
    return mapped(like, lambda name, _: named.get(name or alone))


def rows_of(value: Any) -> int:
    """Returns the number of rows of the first tensor of a batch; 1 if there is none."""
    sizes = (
        len(leaf) for leaf in leaves(value).values() if isinstance(leaf, Tensor) and leaf.dim()
    )
    return next(sizes, 1)


def to_device(value: Any, device: torch.device) -> Any:
    """Returns a nested value on a device.

    Numeric arrays become tensors of the same dtype; arrays of strings or objects are kept.  Objects
    with a `to` method are moved by it.  Other leaves are kept, with one warning per type that is
    neither number nor string.

    Args:
      value: arbitrarily nested value; it is not modified.
      device: target device.
    """

    def move(_: str, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            # Non-blocking only to a GPU: a copy to the CPU could be read too early.
            return leaf.to(device, non_blocking=device.type == "cuda")
        if isinstance(leaf, np.ndarray):
            if leaf.dtype.kind not in _NUMBERS:
                return leaf
            # Shares the array's memory if possible.
            own = np.require(leaf, leaf.dtype.newbyteorder("="), ["C", "W"])
            return torch.from_numpy(own).to(device)
        if _moves_itself(leaf):
            return leaf.to(device)
        if not isinstance(leaf, _PLAIN):
            warn_once(
                f"A batch holds a {type(leaf).__name__}, which stays where it is: only tensors and "
                f"arrays in dicts, lists and tuples are moved to {device}."
            )
        return leaf

    return mapped(value, move, is_leaf=_moves_itself)  # PackedSequence is a tuple


@functools.cache
def warn_once(message: str) -> None:
    """Logs a warning, the same one only once."""
    logging.warning(message)


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None))


def shapes(value: Any) -> list[str]:
    """Returns a line for each leaf, such as `0.input1: float32 [32, 1, 28, 28]`."""
    return [
        f"{name}: {described(leaf)}" if name else described(leaf)
        for name, leaf in leaves(value).items()
    ]


def described(leaf: Any) -> str:
    """Returns a description of a leaf: dtype and shape if it has them, otherwise its type."""
    if isinstance(leaf, Tensor | np.ndarray):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return "None" if leaf is None else type(leaf).__name__


def kind_of(record: Any) -> tuple[Any, ...]:
    """Returns the nesting and shapes of a record; records of the same kind form a batch."""
    return tuple((name, type(one), described(one)) for name, one in leaves(record).items())


def stacked(records: Sequence[Any]) -> Any:
    """Stacks records with the same nesting to a batch, along a new first axis.

    Args:
      records: records of one kind.

    Raises:
      TrialError: a leaf is no tensor, array, number or string.
    """
    columns = [leaves(record) for record in records]
    return mapped(records[0], lambda name, _: _stack(name, [column[name] for column in columns]))


def unstacked(outputs: Any, count: int) -> list[Any]:
    """Splits the outputs of a batch into records.

    Args:
      outputs: nested arrays with the batch as first axis.
      count: number of records.

    Raises:
      TrialError: an output does not have one row per record.
    """
    for name, leaf in leaves(outputs).items():
        if isinstance(leaf, np.ndarray) and leaf.shape[:1] != (count,):
            raise TrialError(
                f"forward returned {name or 'an array'} {described(leaf)} for a batch of {count}: "
                "it has no row for each record. Ask for whole batches, predictor.batch(inputs)."
            )
    return [sliced(outputs, row) for row in range(count)]


def sliced(value: Any, rows: int | slice) -> Any:
    """Returns a nested value with rows of its arrays and tensors, selected by index or slice."""
    return mapped(
        value, lambda _, leaf: leaf[rows] if isinstance(leaf, Tensor | np.ndarray) else leaf
    )


def as_arrays(value: Any) -> Any:
    """Returns a nested value with its tensors converted to arrays."""

    def array(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach().cpu()
        return (leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy()

    return mapped(value, array)


def copied(value: Any) -> Any:
    """Returns a nested value with detached copies of its tensors."""
    return mapped(
        value, lambda _, leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf
    )


def _stack(name: str, column: list[Any]) -> Any:
    first = column[0]
    if isinstance(first, Tensor):
        return torch.stack(column)
    if isinstance(first, np.ndarray | np.number | np.bool_):
        return np.stack(column)
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
