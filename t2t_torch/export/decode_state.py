"""A decode's state as tensors by name, and back: what a graph's loop hands from step to step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from t2t_torch.errors import ExportError
from t2t_torch.layers.key_value_cache import KeyValueCache

_FIXED = (bool, int, float, str, type(None))


def tensors_of(state: Any, name: str = "state") -> dict[str, Tensor]:
    """Returns all tensors of a state by their place in it: "state.caches.0.keys".

    Args:
      state: of a model; made of data classes, named tuples, lists and tuples.
      name: of the whole.

    Raises:
      ExportError: something in it is of another kind; names it.
    """
    if isinstance(state, Tensor):
        return {name: state}
    if isinstance(state, _FIXED):
        return {}
    if isinstance(state, KeyValueCache):
        whole = state.length == state.keys.size(0)  # as in a graph
        filled = (state.keys, state.values) if whole else state.filled
        return dict(zip((f"{name}.keys", f"{name}.values"), filled, strict=True))
    return {
        place: tensor
        for key, part in _parts(state, name)
        for place, tensor in tensors_of(part, f"{name}.{key}").items()
    }


def with_tensors(state: Any, tensors: Mapping[str, Tensor], name: str = "state") -> Any:
    """Returns a state of the same form, with other tensors; see `tensors_of`."""
    if isinstance(state, Tensor):
        return tensors[name]
    if isinstance(state, _FIXED):
        return state
    if isinstance(state, KeyValueCache):
        keys, values = tensors[f"{name}.keys"], tensors[f"{name}.values"]
        return KeyValueCache(keys, values, keys.size(0))
    parts = {key: with_tensors(part, tensors, f"{name}.{key}") for key, part in _parts(state, name)}
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return dataclasses.replace(state, **parts)
    if hasattr(state, "_fields"):
        return type(state)(**parts)
    return type(state)(parts.values())


def _parts(state: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields what a state is made of, by name."""
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        yield from ((field.name, getattr(state, field.name)) for field in dataclasses.fields(state))
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        yield from zip(state._fields, state, strict=True)
    elif isinstance(state, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(state))
    else:
        raise ExportError(
            f"{name} of a decode's state is a {type(state).__name__}, where tensors in data "
            "classes, named tuples, lists and tuples were expected: a graph hands on tensors alone."
        )


class Axes(NamedTuple):
    """What the axes of a tensor of a state stand for.

    Attributes:
      rows: the axis of rows, K of them for each sentence; None if there is none.
      batch: the axis of sentences, for a tensor that all hypotheses of a sentence read.
      varying: other axes whose sizes vary, as that of time does.
    """

    rows: int | None
    batch: int | None
    varying: tuple[int, ...]


def axes_of(
    name: str, shape: tuple[int, ...], others: tuple[tuple[int, ...], ...], batches: tuple[int, int]
) -> Axes:
    """Returns what the axes of a tensor are, by how its shape varies.

    Args:
      name: of the tensor, for errors.
      shape: of it with `batches[0]` sentences.
      others: with `batches[1]` sentences; a step later; with longer inputs.
      batches: two numbers of sentences, neither a multiple of the other.

    Raises:
      ExportError: the number of dimensions varies, or a size with the batch in another way.
    """
    if any(len(other) != len(shape) for other in others):
        raise ExportError(f"{name} of a decode's state has not always as many axes: {shape}.")
    wider, *longer = others
    rows = batch = None
    for axis, (size, more) in enumerate(zip(shape, wider, strict=True)):
        if size == more:
            continue
        if size * batches[1] != more * batches[0] or rows is not None or batch is not None:
            raise ExportError(
                f"axis {axis} of {name} of a decode's state has {size} places for {batches[0]} "
                f"sentences and {more} for {batches[1]}: one axis that grows as they do was "
                "expected."
            )
        if size == batches[0]:
            batch = axis
        else:
            rows = axis
    varying = tuple(
        axis
        for axis, size in enumerate(shape)
        if axis not in (rows, batch) and any(other[axis] != size for other in longer)
    )
    return Axes(rows, batch, varying)
