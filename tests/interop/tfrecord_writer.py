"""A writer of TFRecord files and tf.train.Example messages, for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.data.tfrecord import masked_crc32c

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_BYTES = 2  # wire type
_FLOAT = np.dtype("<f4")


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a file of records."""
    path.write_bytes(_framed([*records]))


def _framed(records: Sequence[bytes]) -> bytes:
    """Returns records with their lengths and checksums."""
    parts = [part for record in records for part in (_LENGTH.pack(len(record)), record)]
    return b"".join(word for part in parts for word in (part, _CHECKSUM.pack(masked_crc32c(part))))


def write_example(lists: Mapping[str, Sequence[int] | Sequence[float] | Sequence[bytes]]) -> bytes:
    """Returns an Example with non-empty lists, whose types are those of their values."""
    entries = []
    for name, values in lists.items():
        if isinstance(values[0], bytes):
            strings: Any = values
            field, content = 1, b"".join(_field_bytes(1, bytes(one)) for one in strings)
        elif isinstance(values[0], float):
            field, content = 2, _field_bytes(1, np.asarray(values, _FLOAT).tobytes())
        else:
            field, content = 3, _field_bytes(1, b"".join(_varint_of(int(v)) for v in values))
        feature = _field_bytes(field, content)
        entries.append(_field_bytes(1, _field_bytes(1, name.encode()) + _field_bytes(2, feature)))
    return _field_bytes(1, b"".join(entries))


def _field_bytes(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | _BYTES]) + _varint_of(len(content)) + content


def _varint_of(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    digits = []
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
