"""TFRecord files and tf.train.Example messages, read without TensorFlow.

A record is its length (8 bytes, little endian), the checksum of the length, its bytes, and their
checksum.  Source: TensorFlow's `tsl/lib/io/record_writer.h`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from t2t_torch.errors import DataError
from t2t_torch.files import open_regular

_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """Returns the checksum of TFRecord files: CRC-32C, masked as in TensorFlow's `crc32c.h`."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEAD = 12  # the length and its checksum
_FOOT = 4
_BATCH_BYTES = 1 << 18  # read at once: what is done with them stays in a processor's cache
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Records:
    """Consecutive records of a file.

    Attributes:
      path: path of the file.
      first: number of the first record, counted from 1.
      offsets: position of each record in bytes.
      contents: content of each record.
    """

    path: Path
    first: int
    offsets: Sequence[int]
    contents: Sequence[bytes]

    def place(self, index: int) -> str:
        """Returns the location of a record, for messages."""
        return f"{self.path}, record {self.first + index} (from byte {self.offsets[index]})"


def read_records(path: Path) -> Iterator[Records]:
    """Yields the records of a file in order, in batches; verifies the checksums.

    Raises:
      DataError: the file is missing, ends within a record, or a checksum differs.
    """
    try:
        with open_regular(path) as file:
            size = path.stat().st_size
            if not size:  # nothing can be mapped
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield from _batches(path, content, size)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _batches(path: Path, content: mmap.mmap, size: int) -> Iterator[Records]:
    start, number = 0, 1
    while start < size:
        offsets: list[int] = []
        contents: list[bytes] = []
        stop = start + _BATCH_BYTES
        while start < min(stop, size):
            try:
                contents.append(_content(content, start, size))
            except ValueError as error:
                remedy = "is damaged or no TFRecord file; copy it again."
                if content[:2] == _GZIP_MAGIC:
                    remedy = "is packed; unpack it:  gunzip"
                place = f"{path}, record {number + len(offsets)} (from byte {start})"
                raise DataError(f"{place}: {error}. The file {remedy}") from None
            offsets.append(start)
            start += _HEAD + len(contents[-1]) + _FOOT
        yield Records(path, number, offsets, contents)
        number += len(contents)


def _content(file: mmap.mmap, start: int, size: int) -> bytes:
    """Returns the content of the record at a position; ValueError if it is damaged or cut off."""
    if size - start < _HEAD:
        raise ValueError("the file ends within the record's length")
    length = _LENGTH.unpack(_verified(file, start, start + _LENGTH.size, "length"))[0]
    left = max(size - start - _HEAD - _FOOT, 0)
    if length > left:
        raise ValueError(
            f"{length:,} bytes of content were expected, and the file ends after {left:,}"
        )
    return _verified(file, start + _HEAD, start + _HEAD + length, "content")


def _verified(file: mmap.mmap, first: int, last: int, what: str) -> bytes:
    """Returns bytes after a comparison with the checksum that follows them."""
    read = file[first:last]
    actual, expected = masked_crc32c(read), _CHECKSUM.unpack_from(file, last)[0]
    if actual != expected:
        raise ValueError(
            f"the checksum of its {what} is {expected:#010x} in the file, but its bytes have "
            f"{actual:#010x}"
        )
    return read


def message_types(schema: str) -> dict[str, Any]:
    """Returns classes of protocol buffers by name, apart from those of an installed TensorFlow.

    Args:
      schema: names of messages, each with its fields, `number:type:field`.  A type is one of
        protobuf's or a message before it; `+` before it means repeated, and `?` an alternative of
        the one-of `kind`.
    """
    file = descriptor_pb2.FileDescriptorProto(name="t2t_torch.proto", syntax="proto3")
    for word in schema.split():
        if ":" not in word:
            made = file.message_type.add(name=word)
            continue
        number, kind, field = word.split(":")
        added = made.field.add(name=field, number=int(number))
        added.label = added.LABEL_REPEATED if kind[0] == "+" else added.LABEL_OPTIONAL
        if kind[0] == "?":
            added.oneof_index = 0
            if not made.oneof_decl:
                made.oneof_decl.add(name="kind")
        kind = kind.lstrip("+?")
        if kind[0].isupper():
            added.type, added.type_name = added.TYPE_MESSAGE, f".{kind}"
        else:
            added.type = added.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        one.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(one.name))
        for one in file.message_type
    }


def parse_message(kind: Any, content: bytes) -> Any:
    """Returns a message; raises ValueError if the content is none."""
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise ValueError(f"it is no {kind.DESCRIPTOR.name}: {error}") from None


# TensorFlow's core/example/feature.proto; a map is a repeated message of keys and values.
_EXAMPLE = message_types(
    """
    BytesList 1:+bytes:value
    FloatList 1:+float:value
    Int64List 1:+int64:value
    Feature 1:?BytesList:bytes 2:?FloatList:float 3:?Int64List:int64
    Entry 1:string:key 2:Feature:value
    Features 1:+Entry:feature
    Example 1:Features:features
    """
)["Example"]


class ExampleValues(NamedTuple):
    """A list of an Example: the type of its elements ("bytes", "float", "int64"), and these."""

    kind: str
    items: Sequence[Any]


def parse_example(record: bytes) -> dict[str, ExampleValues]:
    """Returns the lists of an Example by name; omits lists without a type and unknown fields.

    Raises:
      ValueError: the record is not an Example; contains the reason.
    """
    entries = parse_message(_EXAMPLE, record).features.feature
    kinds = {entry.key: (entry.value, entry.value.WhichOneof("kind")) for entry in entries}
    return {
        name: ExampleValues(kind, getattr(feature, kind).value)
        for name, (feature, kind) in kinds.items()
        if kind
    }
