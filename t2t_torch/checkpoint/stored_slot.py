"""A slot of an optimizer as a tensor: a number of Python stands as one whose name says its type."""

from __future__ import annotations

import torch
from torch import Tensor

_MARK = "#"
_TYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


def stored_slot(value: object) -> tuple[str, Tensor]:
    """Returns what a slot's name ends with, and the slot as a tensor.

    Args:
      value: a tensor, or an int, a float or a bool, which no bit of is lost.

    Raises:
      TypeError: it is something else, as a sparse tensor, or an int of more than 64 bits.
    """
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise TypeError(f"a tensor of {value.layout}")
        return "", value
    if isinstance(value, float):  # numpy's is one, too
        return f"{_MARK}float", torch.tensor(float(value), dtype=_TYPES["float"])
    kind = type(value).__name__
    if not isinstance(value, int) or kind not in _TYPES or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"{value!r} is neither a tensor nor a number")
    return f"{_MARK}{kind}", torch.tensor(value, dtype=_TYPES[kind])


def slot_of(name: str, tensor: Tensor) -> tuple[str, Tensor | int | float]:
    """Returns a slot's own name and value, of what `stored_slot` made of it."""
    own, mark, kind = name.rpartition(_MARK)
    if not mark or kind not in _TYPES or tensor.ndim:
        return name, tensor
    value: int | float = tensor.item()
    return own, value
