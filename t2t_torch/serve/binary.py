"""Tensors as bytes behind the JSON of a body: Triton's extension `binary_tensor_data`.

https://github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md.  Elements
are little-endian, in row-major order; of `BYTES` each has its length before it, in four bytes.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_torch.serve.arrays import DATATYPES
from t2t_torch.serve.bounds import check_tensors
from t2t_torch.serve.elements import miscounted
from t2t_torch.serve.limits import Limits
from t2t_torch.serve.protocol import MOST_TENSORS, InferenceRequest, RequestInput, parsed
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

NAME = "binary_tensor_data"
"""Of the extension."""

HEADER = "Inference-Header-Content-Length"
"""Of a body with bytes behind its JSON: how many bytes the JSON has."""

SIZE = "binary_data_size"
"""The parameter of a tensor whose data are behind the JSON: its bytes."""

_EVERY, _ONE = "binary_data_output", "binary_data"
_LENGTH = struct.Struct("<I")
_DTYPES = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in DATATYPES.items()}


def divided(body: bytes, length: str) -> tuple[bytes, bytes]:
    """Returns the JSON of a body and the bytes behind it.

    Args:
      body: both.
      length: what `HEADER` says.

    Raises:
      Refusal: it is no number, or the body is shorter.
    """
    if not (length.isascii() and length.isdecimal() and len(length) < 20):
        raise Refusal(BAD_REQUEST, f"{HEADER}: {length!r} is no number of bytes.")
    if int(length) > len(body):
        raise Refusal(
            BAD_REQUEST, f"{HEADER} says {int(length):,} bytes; the body has {len(body):,}."
        )
    return body[: int(length)], body[int(length) :]


def raw(name: str, blob: bytes) -> Any:
    """Returns a request for all outputs as bytes: its body is one text, without its length.

    Args:
      name: of the only tensor that the model is asked with; "" if that is no such.
      blob: the body.

    Raises:
      Refusal: the model is asked otherwise, or the text is no UTF-8.
    """
    if not name:
        raise Refusal(
            BAD_REQUEST,
            f"{HEADER}: 0 says that the body is the only text which the model is asked with, and "
            "this one is asked with others. Send JSON that tells its tensors.",
        )
    tensor = {"name": name, "shape": [1], "datatype": "BYTES", "data": [_text(name, 0, blob)]}
    return {"inputs": [tensor], "parameters": {_EVERY: True}}


def filled(told: Any, blob: bytes, limits: Limits) -> InferenceRequest:
    """Returns a request whose tensors all have `data`, those of bytes, too.

    Args:
      told: the request's JSON, of any form.
      blob: the bytes behind it, of one tensor after another.
      limits: of how many inputs are read.

    Raises:
      Refusal: the JSON has another form, or asks for what there is not; there are more bytes or
        fewer than the tensors say; or they are no such elements.
    """
    bare = [isinstance(one, dict) and "data" not in one for one in _inputs(told)]
    if any(bare):
        given = zip(_inputs(told), bare, strict=True)
        told = {**told, "inputs": [{**one, "data": []} if its else one for one, its in given]}
    request = parsed(InferenceRequest, told)
    request.check_extensions()
    _check_booleans(request)
    check_tensors(request.inputs, limits)
    at = 0
    for number, (tensor, its) in enumerate(zip(request.inputs, bare, strict=True)):
        size = _size_of(tensor)
        if size is None and its:
            raise Refusal(BAD_REQUEST, f"inputs.{number}.data: Field required.")
        if size is None:
            continue
        if not its:
            raise Refusal(BAD_REQUEST, f"{tensor.name!r} has both `data` and {SIZE}: expected one.")
        if size > len(blob) - at:
            raise Refusal(
                BAD_REQUEST,
                f"{tensor.name!r} has {size:,} bytes by its {SIZE}, and {len(blob) - at:,} are "
                "left behind the JSON.",
            )
        tensor.data = _elements(tensor, blob[at : at + size])
        at += size
    if at < len(blob):
        raise Refusal(
            BAD_REQUEST,
            f"behind the JSON there are {len(blob) - at:,} bytes that are of no tensor; each says "
            f"in its parameter {SIZE} how many are its own.",
        )
    return request


def packed(
    request: InferenceRequest, outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the tensors of a response, and the bytes of those that are wanted so.

    Args:
      request: that says which: by `binary_data` of an output, or `binary_data_output` of all.
      outputs: with `data`, which those of bytes lose.
    """
    every = request.parameters.get(_EVERY, False)
    asked = {one.name: one.parameters for one in request.outputs or ()}
    told, blobs = [], []
    for output in map(dict, outputs):
        if asked.get(output["name"], {}).get(_ONE, every):
            blobs.append(_bytes(output["datatype"], output.pop("data")))
            output["parameters"] = {**output.get("parameters", {}), SIZE: len(blobs[-1])}
        told.append(output)
    return told, b"".join(blobs)


def _inputs(told: Any) -> list[Any]:
    """Returns the inputs of a request of any form; none if it has no list of so few."""
    inputs = told.get("inputs") if isinstance(told, dict) else None
    return inputs if isinstance(inputs, list) and len(inputs) <= MOST_TENSORS else []


def _check_booleans(request: InferenceRequest) -> None:
    """Raises Refusal unless what says which outputs are bytes says yes or no."""
    told = [(_EVERY, request.parameters)]
    told += [(_ONE, output.parameters) for output in request.outputs or ()]
    for name, parameters in told:
        value = parameters.get(name, False)
        if not isinstance(value, bool):
            raise Refusal(
                BAD_REQUEST, f"the parameter {name} is {reprlib.repr(value)}: expected a boolean."
            )


def _size_of(tensor: RequestInput) -> int | None:
    """Returns how many bytes a tensor has behind the JSON; None if its data are in it."""
    size = tensor.parameters.get(SIZE)
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise Refusal(BAD_REQUEST, f"{SIZE}: {reprlib.repr(size)} is no number of bytes.")
    return size


def _elements(tensor: RequestInput, blob: bytes) -> list[Any]:
    """Returns as many elements as a tensor's shape says; no more are read."""
    if tensor.datatype == "BYTES":
        return _texts(tensor, blob)
    dtype = _DTYPES.get(tensor.datatype)
    if dtype is None or len(blob) % dtype.itemsize:
        raise Refusal(
            BAD_REQUEST,
            f"{tensor.name!r}: {len(blob):,} bytes are no elements of {tensor.datatype}.",
        )
    if len(blob) != tensor.count * dtype.itemsize:
        raise miscounted(tensor, f"{len(blob) // dtype.itemsize}")
    return np.frombuffer(blob, dtype).tolist()  # type: ignore[no-any-return]


def _texts(tensor: RequestInput, blob: bytes) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(blob):
        if len(found) == tensor.count:
            raise miscounted(tensor, f"more than {tensor.count}")
        end = at + _LENGTH.size
        if end <= len(blob):
            end += _LENGTH.unpack_from(blob, at)[0]
        if end > len(blob):
            raise Refusal(
                BAD_REQUEST,
                f"{tensor.name!r}: element {len(found)} goes beyond the tensor's {len(blob):,} "
                "bytes. Each has its length before it, four bytes, the lowest first.",
            )
        found.append(_text(tensor.name, len(found), blob[at + _LENGTH.size : end]))
        at = end
    return found


def _text(name: str, number: int, blob: bytes) -> str:
    try:
        return blob.decode()
    except UnicodeDecodeError:
        raise Refusal(BAD_REQUEST, f"{name!r}: element {number} is no UTF-8.") from None


def _bytes(datatype: str, data: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.asarray(data, _DTYPES[datatype]).tobytes()
    texts = [text.encode("utf-8", "replace") for text in data]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
