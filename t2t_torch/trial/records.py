"""Records as batches and back: the inputs of single records stacked, and outputs taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.errors import TrialError
from t2t_torch.trial.nested import described, leaves


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
