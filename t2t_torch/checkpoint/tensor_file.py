"""Tensors as a safetensors file, piece by piece: nothing is copied, and no piece holds Python up.

The `safetensors` package reads what is written here; its own writer makes one call of a whole file,
in older versions with the interpreter locked, so that training beside it would stand still.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
DTYPES = {name: dtype for dtype, name in _NAMES.items()}
"""torch's types by the format's names."""

_ALIGNMENT = 8  # of the header's end


def chunks_of(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yields the pieces of a safetensors file.

    Args:
      tensors: contiguous, on the CPU.
      metadata: what the header says besides.

    Raises:
      TypeError: a tensor is of a type that the format does not know.
    """
    # Wide types first: then every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{name} is of {tensor.dtype}, which a safetensors file cannot hold")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        if tensors[name].numel():
            yield tensors[name].reshape(-1).view(torch.uint8).numpy().data
