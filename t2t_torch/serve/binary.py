"""Tensors as bytes behind the JSON of a body: Triton's extension `binary_tensor_data`.

https://github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md.  Elements
are little-endian, in row-major order; of `BYTES` each has its length before it, in four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_torch.serve.arrays import DATATYPES
from t2t_torch.serve.protocol import InferenceRequest
from t2t_torch.serve.refusal import BAD_REQUEST, Refusal

NAME = "binary_tensor_data"
"""Of the extension."""

HEADER = "Inference-Header-Content-Length"
"""Of a body with bytes behind its JSON: how many bytes the JSON has."""

_SIZE = "binary_data_size"
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


def filled(told: Any, blob: bytes) -> Any:
    """Returns a request whose tensors all have `data`, those of bytes, too.

    Args:
      told: the request's JSON, of any form.
      blob: the bytes behind it, of one tensor after another.

    Raises:
      Refusal: there are more bytes or fewer than the tensors say, or they are no such elements.
    """
    inputs = told.get("inputs") if isinstance(told, dict) else None
    at, found = 0, []
    for tensor in inputs if isinstance(inputs, list) else ():
        size = _size_of(tensor)
        if size is not None:
            if "data" in tensor:
                raise Refusal(
                    BAD_REQUEST,
                    f"{tensor.get('name')!r} has both `data` and {_SIZE}: expected one.",
                )
            if size > len(blob) - at:
                raise Refusal(
                    BAD_REQUEST,
                    f"{tensor.get('name')!r} has {size:,} bytes by its {_SIZE}, and "
                    f"{len(blob) - at:,} are left behind the JSON.",
                )
            elements = _elements(tensor, blob[at : at + size])
            tensor = {**tensor, "data": elements}
            at += size
        found.append(tensor)
    if at < len(blob):
        raise Refusal(
            BAD_REQUEST,
            f"behind the JSON there are {len(blob) - at:,} bytes that are of no tensor; each says "
            f"in its parameter {_SIZE} how many are its own.",
        )
    return {**told, "inputs": found} if isinstance(inputs, list) else told


def packed(
    request: InferenceRequest, outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the tensors of a response, and the bytes of those that are wanted so.

    Args:
      request: that says which: by `binary_data` of an output, or `binary_data_output` of all.
      outputs: with `data`, which those of bytes lose.
    """
    every = bool(request.parameters.get("binary_data_output", False))
    asked = {one.name: one.parameters for one in request.outputs or ()}
    told, blobs = [], []
    for output in map(dict, outputs):
        if asked.get(output["name"], {}).get("binary_data", every):
            blobs.append(_bytes(output["datatype"], output.pop("data")))
            output["parameters"] = {**output.get("parameters", {}), _SIZE: len(blobs[-1])}
        told.append(output)
    return told, b"".join(blobs)


def _size_of(tensor: Any) -> int | None:
    """Returns how many bytes a tensor has behind the JSON; None if its data are in it."""
    parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
    size = parameters.get(_SIZE) if isinstance(parameters, dict) else None
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise Refusal(BAD_REQUEST, f"{_SIZE}: {size!r} is no number of bytes.")
    return size


def _elements(tensor: Mapping[str, Any], blob: bytes) -> list[Any]:
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if datatype == "BYTES":
        return _texts(name, blob)
    dtype = _DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None or len(blob) % dtype.itemsize:
        raise Refusal(BAD_REQUEST, f"{name!r}: {len(blob):,} bytes are no elements of {datatype}.")
    return np.frombuffer(blob, dtype).tolist()  # type: ignore[no-any-return]


def _texts(name: Any, blob: bytes) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(blob):
        end = at + _LENGTH.size
        if end <= len(blob):
            end += _LENGTH.unpack_from(blob, at)[0]
        if end > len(blob):
            raise Refusal(
                BAD_REQUEST,
                f"{name!r}: element {len(found)} goes beyond the tensor's {len(blob):,} bytes. "
                "Each has its length before it, four bytes, the lowest first.",
            )
        try:
            found.append(blob[at + _LENGTH.size : end].decode())
        except UnicodeDecodeError:
            raise Refusal(BAD_REQUEST, f"{name!r}: element {len(found)} is no UTF-8.") from None
        at = end
    return found


def _bytes(datatype: str, data: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.asarray(data, _DTYPES[datatype]).tobytes()
    texts = [text.encode("utf-8", "replace") for text in data]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
