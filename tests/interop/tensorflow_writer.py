"""A writer of TensorFlow's V2 checkpoints, for tests: an index (SSTable) and one data file."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from t2t_torch.data.tfrecord import masked_crc32c

FLOAT, INT32, INT64 = 1, 3, 9
"""Numbers of TensorFlow's data types (DataType in types.proto)."""


def write_checkpoint(prefix: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Writes a checkpoint with one data file: `prefix.index`, `prefix.data-00000-of-00001`.

    Args:
      prefix: path without suffix, such as `run/model.ckpt-100`.
      arrays: variables by full name, float32, int32 or int64.
    """
    types = {"float32": FLOAT, "int32": INT32, "int64": INT64}
    entries, data = {}, b""
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        content = array.tobytes()
        entries[name.encode()] = entry(types[str(array.dtype)], array.shape, len(data), content)
        data += content
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    write_index(prefix.with_name(f"{prefix.name}.index"), entries)


def varint(number: int) -> bytes:
    """A number in protobuf's and LevelDB's base-128 encoding."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def message(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(dtype: int, shape: tuple[int, ...], offset: int, content: bytes) -> bytes:
    """A BundleEntryProto: where a tensor is, and its checksum."""
    sizes = b"".join(message(2, b"\x08" + varint(size)) for size in shape)
    place = b"\x20" + varint(offset) + b"\x28" + varint(len(content))
    checksum = b"\x35" + struct.pack("<I", masked_crc32c(content))
    return b"\x08" + varint(dtype) + message(2, sizes) + place + checksum


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A block of an SSTable without compression, with type and checksum."""
    content = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs
    )
    content += struct.pack("<II", 0, 1)
    return content + b"\0" + struct.pack("<I", masked_crc32c(content + b"\0"))


def write_index(path: Path, entries: Mapping[bytes, bytes]) -> None:
    """Writes an index of one block.

    Args:
      path: the file.
      entries: BundleEntryProto messages by key.
    """
    pairs = block(sorted({b"": b"\x08\x01", **entries}.items()))
    empty = block([])
    handle = varint(0) + varint(len(pairs) - 5)
    index = block([(b"\xff", handle)])
    footer = varint(len(pairs)) + varint(len(empty) - 5)
    footer += varint(len(pairs) + len(empty)) + varint(len(index) - 5)
    magic = struct.pack("<Q", 0xDB4775248B80FB57)
    path.write_bytes(pairs + empty + index + footer.ljust(40, b"\0") + magic)
