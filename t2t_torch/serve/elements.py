"""The elements of a request's tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t2t_torch.serve.protocol import RequestInput
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

_REALS = ("FP16", "FP32", "FP64")
_WHOLES = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_GREATEST = 3.4028235677973366e38  # just beyond float32


def flat(tensor: RequestInput) -> list[Any]:
    """Returns the elements in row-major order; raises Refusal unless the shape has as many."""
    data = tensor.data
    while data and all(isinstance(one, list) for one in data):
        data = [one for row in data for one in row]
    if tensor.count != len(data):
        raise miscounted(tensor, f"{len(data)}")
    return data


def strings(tensor: RequestInput) -> list[str]:
    """Returns the elements of a tensor of strings; raises Refusal if it has others."""
    data = flat(tensor)
    _check_type(tensor, ("BYTES",), "strings")
    return _all(tensor, data, str, "a string")


def numbers(tensor: RequestInput) -> list[float]:
    """Returns the elements of a tensor of numbers; raises Refusal if it has others."""
    data = flat(tensor)
    _check_type(tensor, (*_REALS, *_WHOLES), "numbers")
    whole = tensor.datatype in _WHOLES
    found = _all(tensor, data, int if whole else (int, float), "a number")
    if any(isinstance(one, bool) or not abs(one) < _GREATEST for one in found):
        raise Refusal(BAD_REQUEST, f"{tensor.name!r} has an element that is no finite number.")
    return found


def miscounted(tensor: RequestInput, count: str) -> Refusal:
    """Returns what refuses a tensor that has not as many elements as its shape says."""
    return Refusal(
        BAD_REQUEST, f"{tensor.name!r} has the shape {tensor.shape} and {count} elements."
    )


def misshapen(tensor: RequestInput, expected: str) -> Refusal:
    """Returns what refuses a tensor of another shape than what was expected."""
    return Refusal(
        BAD_REQUEST, f"{tensor.name!r} has the shape {tensor.shape}; expected {expected}."
    )


def _check_type(tensor: RequestInput, allowed: Sequence[str], what: str) -> None:
    if tensor.datatype not in allowed:
        raise Refusal(
            BAD_REQUEST,
            f"{tensor.name!r} has the datatype {tensor.datatype!r}; expected {what}: "
            f"{', '.join(allowed)}.",
        )


def _all(tensor: RequestInput, data: list[Any], kind: Any, what: str) -> list[Any]:
    for number, one in enumerate(data):
        if not isinstance(one, kind):
            raise Refusal(
                BAD_REQUEST,
                f"element {number} of {tensor.name!r} is not {what}, as {tensor.datatype} wants.",
            )
    return data
