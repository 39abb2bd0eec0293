"""TFRecord files and tf.train.Example messages, read without TensorFlow.

A record is its length (8 bytes, little endian), the checksum of the length, its bytes, and their
checksum.  Source: TensorFlow's `tsl/lib/io/record_writer.h`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import google_crc32c
import numpy as np

from t2t_torch.data.shards import Ragged
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
        offsets, stops = [], []
        stop = start
        while stop - start < _BATCH_BYTES and size - stop >= _HEAD:
            end = stop + _HEAD + _LENGTH.unpack_from(content, stop)[0] + _FOOT
            if end > size:
                break
            offsets.append(stop)
            stops.append(end)
            stop = end
        _check(path, content, number, offsets, stops)
        pairs = zip(offsets, stops, strict=True)
        contents = [content[begin + _HEAD : end - _FOOT] for begin, end in pairs]
        if not contents:
            raise _cut_off(path, content, number, start, size)
        yield Records(path, number, offsets, contents)
        number += len(contents)
        start = stop


def _check(
    path: Path, content: mmap.mmap, number: int, offsets: Sequence[int], stops: Sequence[int]
) -> None:
    """Verifies the two checksums of each record."""
    # Of each record the length and the content; the checksum of either follows it.
    edges = [
        edge
        for begin, end in zip(offsets, stops, strict=True)
        for edge in ((begin, begin + _LENGTH.size), (begin + _HEAD, end - _FOOT))
    ]
    expected = [_CHECKSUM.unpack_from(content, last)[0] for _, last in edges]
    actual = [masked_crc32c(content[first:last]) for first, last in edges]
    if expected == actual:
        return
    wrong = next(i for i, pair in enumerate(zip(expected, actual, strict=True)) if len({*pair}) > 1)
    record, part = divmod(wrong, 2)
    raise _damaged(
        f"{path}, record {number + record} (from byte {offsets[record]}): the checksum of its "
        f"{('length', 'content')[part]} is {expected[wrong]:#010x} in the file, but its bytes have "
        f"{actual[wrong]:#010x}.",
        content,
    )


def _cut_off(path: Path, content: mmap.mmap, number: int, start: int, size: int) -> DataError:
    """Returns the error for an incomplete record."""
    place = f"{path}, record {number} (from byte {start})"
    if size - start < _HEAD:
        return _damaged(f"{place}: the file ends within the record's length.", content)
    (expected,) = _CHECKSUM.unpack_from(content, start + _LENGTH.size)
    actual = masked_crc32c(content[start : start + _LENGTH.size])
    if expected != actual:
        fault = f"the checksum of its length is {expected:#010x} in the file, but its bytes have"
        return _damaged(f"{place}: {fault} {actual:#010x}.", content)
    length = _LENGTH.unpack_from(content, start)[0]
    left = max(size - start - _HEAD - _FOOT, 0)
    return _damaged(
        f"{place}: {length:,} bytes of content were expected, and the file ends after {left:,}.",
        content,
    )


def _damaged(message: str, content: mmap.mmap) -> DataError:
    if content[:2] == _GZIP_MAGIC:
        return DataError(f"{message} The file is packed; unpack it:  gunzip")
    return DataError(f"{message} The file is damaged or no TFRecord file; copy it again.")


# The records of tensor2tensor's files: `tf.train.Example`, read without TensorFlow.
#
# An Example maps names to lists of integers, floats or bytes.  Source: TensorFlow's
# `core/example/feature.proto` and protobuf's encoding,
# https://protobuf.dev/programming-guides/encoding.


Kind: TypeAlias = Literal["bytes", "float", "int64"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_KINDS: Mapping[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}  # numbers of Feature's fields
_MAX_VARINT_BYTES = 10
_FLOAT = np.dtype("<f4")


@dataclass(frozen=True)
class Values:
    """A list of an Example.

    Attributes:
      kind: type of the elements.
      packed: concatenated varints for int64, little-endian numbers for float.
      items: elements for bytes.
    """

    kind: Kind
    packed: bytes = b""
    items: Sequence[bytes] = ()

    @property
    def is_empty(self) -> bool:
        """True if the list is empty."""
        return not self.packed and not self.items

    def to_list(self) -> list[int] | list[float] | list[bytes]:
        """Returns the elements; raises ValueError if the list is malformed."""
        if self.kind == "bytes":
            return list(self.items)
        rows = int64_rows if self.kind == "int64" else float_rows
        numbers: list[int] | list[float] = rows([self.packed]).values.tolist()
        return numbers


def parse_example(record: bytes) -> dict[str, Values]:
    """Returns the lists of an Example by name; omits lists without a type and unknown fields.

    Raises:
      ValueError: the record is not an Example; contains the reason.
    """
    lists: dict[str, Values] = {}
    for number, wire, start, stop in message_fields(record, 0, len(record)):
        if number == 1 and wire == _BYTES:
            for entry, entry_wire, begin, end in message_fields(record, start, stop):
                if entry == 1 and entry_wire == _BYTES:
                    name, values = _entry(record, begin, end)
                    if values is None:
                        lists.pop(name, None)
                    else:
                        lists[name] = values
    return lists


def int64_rows(packed: Sequence[bytes]) -> Ragged:
    """Returns the integers of lists as int64; raises ValueError if a list is malformed."""
    data = np.frombuffer(b"".join(packed), np.uint8)
    is_last = data < 0x80
    stops = np.cumsum(np.fromiter(map(len, packed), np.int64, len(packed)))
    if not is_last[stops[np.diff(stops, prepend=0) > 0] - 1].all():
        raise ValueError("a list of integers ends within a number")
    counted = np.concatenate([[0], np.cumsum(is_last)])
    offsets = np.concatenate([[0], counted[stops]]).astype(np.int64)
    if is_last.all():
        return Ragged(data.astype(np.int64), offsets)
    ends = np.flatnonzero(is_last) + 1
    sizes = np.diff(ends, prepend=0)
    if sizes.max() > _MAX_VARINT_BYTES:
        raise ValueError(f"an integer has more than {_MAX_VARINT_BYTES} bytes")
    starts = ends - sizes
    place = np.arange(len(data)) - np.repeat(starts, sizes)
    parts = (data & np.uint8(0x7F)).astype(np.uint64) << (7 * place).astype(np.uint64)
    return Ragged(np.add.reduceat(parts, starts).view(np.int64), offsets)


def float_rows(packed: Sequence[bytes]) -> Ragged:
    """Returns the numbers of lists as float32; raises ValueError if a list is malformed."""
    sizes = np.fromiter(map(len, packed), np.int64, len(packed))
    if (sizes % _FLOAT.itemsize).any():
        raise ValueError("a list of floats ends within a number")
    offsets = np.concatenate([[0], np.cumsum(sizes // _FLOAT.itemsize)]).astype(np.int64)
    values = np.frombuffer(b"".join(packed), _FLOAT).astype(np.float32)
    return Ragged(values, offsets)


def _entry(record: bytes, start: int, stop: int) -> tuple[str, Values | None]:
    """Returns the name and the list of a map entry."""
    name = ""
    values: Values | None = None
    for number, wire, begin, end in message_fields(record, start, stop):
        if number == 1 and wire == _BYTES:
            name = record[begin:end].decode()
        elif number == 2 and wire == _BYTES:
            values = _feature(record, begin, end)
    return name, values


def _feature(record: bytes, start: int, stop: int) -> Values | None:
    """Returns the last list of a feature; lists of the same type are concatenated."""
    values: Values | None = None
    for number, wire, begin, end in message_fields(record, start, stop):
        kind = _KINDS.get(number) if wire == _BYTES else None
        if kind is not None:
            more = _list(record, begin, end, kind)
            if values is not None and values.kind == kind:
                more = Values(kind, values.packed + more.packed, [*values.items, *more.items])
            values = more
    return values


def _list(record: bytes, start: int, stop: int, kind: Kind) -> Values:
    """Returns a list; packed and unpacked numbers have the same bytes."""
    single = {"bytes": _BYTES, "float": _FIXED32, "int64": _VARINT}[kind]
    parts = [
        record[begin:end]
        for number, wire, begin, end in message_fields(record, start, stop)
        if number == 1 and wire in (single, _BYTES)
    ]
    return Values(kind, items=parts) if kind == "bytes" else Values(kind, packed=b"".join(parts))


def message_fields(record: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, wire type, start, stop of the content) of each field of a message."""
    while start < stop:
        tag, start = read_varint(record, start, stop)
        wire = tag & 7
        if wire == _BYTES:
            size, start = read_varint(record, start, stop)
            end = start + size
        elif wire == _VARINT:
            _, end = read_varint(record, start, stop)
        elif wire == _FIXED32:
            end = start + 4
        elif wire == _FIXED64:
            end = start + 8
        else:
            raise ValueError(f"wire type {wire} at byte {start}, where 0, 1, 2 or 5 is expected")
        if end > stop or tag < 8:
            raise ValueError(
                f"a field at byte {start} has no number, or is longer than its message"
            )
        yield tag >> 3, wire, start, end
        start = end


def read_varint(record: bytes, start: int, stop: int) -> tuple[int, int]:
    """Returns a varint (7 bits per byte, low bits first) and its end."""
    if start < stop and record[start] < 0x80:  # most are of one byte
        return record[start], start + 1
    number = 0
    for place in range(start, min(stop, start + _MAX_VARINT_BYTES)):
        byte = record[place]
        number |= (byte & 0x7F) << (7 * (place - start))
        if byte < 0x80:
            return number, place + 1
    raise ValueError(f"a number at byte {start} does not end")
