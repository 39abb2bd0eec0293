"""Arrays of a trial as the tensors of the Open Inference Protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.artifact.answer import Answer
from t2t_torch.artifact.nesting import array_of
from t2t_torch.artifact.signature import Field
from t2t_torch.errors import DataError
from t2t_torch.serve.elements import misshapen
from t2t_torch.serve.model import InputField, OutputTarget
from t2t_torch.serve.protocol import RequestInput
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

DATATYPES = {
    "bool": "BOOL",
    **{
        f"{sign}int{bits}": f"{sign}INT{bits}".upper()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
"""What the protocol calls numbers, by numpy's name."""

_MOST_EMPTY = 1 << 20
"""Product of the axes beside those of 0: a model may make elements of what has none, by a sum."""


def described(part: InputField | OutputTarget) -> tuple[str, list[int]]:
    """Returns datatype and shape of what goes in or comes out; -1 is a size that is not fixed."""
    return DATATYPES[part.dtype], [-1, *part.shape]


def column_of(field: InputField, tensor: RequestInput, data: Sequence[Any]) -> list[Any]:
    """Returns the arrays of a tensor, one for each input.

    Args:
      field: that it is given for.
      tensor: of the request.
      data: its elements, flat; as many as its shape says.

    Raises:
      Refusal: it is of another datatype or shape.
    """
    datatype, shape = described(field)
    if tensor.datatype not in DATATYPES.values():
        raise Refusal(
            BAD_REQUEST,
            f"{field.name!r} has the datatype {tensor.datatype!r}; expected {datatype}.",
        )
    if not data and math.prod(size or 1 for size in tensor.shape) > _MOST_EMPTY:
        raise misshapen(tensor, f"{shape}, and smaller axes where there are no elements")
    try:
        # By their own elements, not by what the request calls them: whole numbers stay whole.
        array = np.asarray(data, field.dtype if not data else None)
        rows = array_of(
            Field(field.name, "tensor", field.dtype, shape=field.shape),
            array.reshape(tensor.shape),
            rows=True,
        )
    except (DataError, ValueError, OverflowError) as error:
        raise Refusal(BAD_REQUEST, f"{error} Expected {datatype} {shape}.") from None
    return list(rows)


def tensor_of(target: OutputTarget, found: Sequence[Answer]) -> dict[str, Any]:
    """Returns the tensor of answers.

    Raises:
      Refusal: the answers to a request are of different sizes.
    """
    rows: list[npt.NDArray[Any]] = [np.asarray(one.values[target.name]) for one in found]
    if len({row.shape for row in rows}) > 1:
        raise Refusal(
            BAD_REQUEST,
            f"the answers in {target.name!r} have different shapes, and a tensor has one: ask with "
            "inputs of one size, or at predict.",
        )
    array = np.stack(rows)
    return {
        "name": target.name,
        "shape": list(array.shape),
        "datatype": described(target)[0],
        "data": array.reshape(-1).tolist(),
    }
