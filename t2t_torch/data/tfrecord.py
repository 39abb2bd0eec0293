"""Files of records that TensorFlow wrote, read without it.

A record is its length (8 bytes, little endian), the checksum of the length, its bytes, and their
checksum.  Source: TensorFlow's `tsl/lib/io/record_writer.h`.
"""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.data.shards import Ragged
from t2t_torch.errors import DataError
from t2t_torch.files import staged

# The checksum of TFRecord files, of many pieces of bytes at once.
#
# CRC-32C (Castagnoli), RFC 3720 appendix B.4; masked as in TensorFlow's `tsl/lib/hash/crc32c.h`.


Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.uint32]
Places: TypeAlias = npt.NDArray[np.int64]

ROOM = 4
"""How many bytes follow each piece: as many as a checksum has."""

_POLYNOMIAL = 0x82F63B78  # reflected
_ALL_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_BLOCK_BYTES = 1024  # makes a table of 1 MB, which a processor's cache holds


def masked_crc32c(data: Bytes, stops: Places) -> Numbers:
    """Returns the masked checksum of each piece, as `crc32c` does."""
    crc = crc32c(data, stops)
    masked: Numbers = ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)
    return masked


def crc32c(data: Bytes, stops: Places) -> Numbers:
    """Returns the checksum of each of the pieces that stand one after another in `data`.

    A checksum is linear: the sum (XOR) of what each byte alone does to it, which depends on the
    byte and its distance from the end.  So all bytes are looked up at once.  A state before acts as
    if it were added to the first four bytes; what is beyond a shorter piece stays as it is.

    Args:
      data: the pieces, each with `ROOM` bytes after it.  It is written to.
      stops: [pieces] where the room of each ends.
    """
    if not len(stops):
        return np.zeros(0, np.uint32)
    starts = np.concatenate([[0], stops[:-1]])
    for byte in range(ROOM):
        data[stops - 1 - byte] = 0
    for byte in range(ROOM):
        data[starts + byte] ^= 0xFF  # the state before the first byte
    # Blocks: each but a piece's last is full, and ends as if there were room after it.
    counts = (stops - starts - ROOM) // _BLOCK_BYTES + 1
    last = np.cumsum(counts) - 1
    number = np.arange(last[-1] + 1) - np.repeat(last - counts + 1, counts)  # within its piece
    first = np.repeat(starts, counts) + number * _BLOCK_BYTES
    ends = first + (_BLOCK_BYTES + ROOM)
    ends[last] = stops
    sizes = np.diff(first, append=stops[-1:])
    index = np.repeat(ends, sizes) - np.arange(1, stops[-1] + 1)
    index <<= 8
    index |= data[: stops[-1]]
    sums = np.bitwise_xor.reduceat(_effects().ravel().take(index), first)
    values: Numbers = sums[last]
    for piece in np.flatnonzero(counts > 1).tolist():
        stop = int(last[piece])
        blocks = range(stop - int(counts[piece]) + 1, stop + 1)
        values[piece] = _joined(sums[blocks.start : blocks.stop], int(ends[stop] - first[stop]))
    values ^= np.uint32(_ALL_ONES)
    return values


def _joined(sums: Numbers, last_size: int) -> int:
    """The sum of a piece from those of its blocks; the last has `last_size` bytes, room and all."""
    effects = _effects()
    state = int(sums[0])
    for number, value in enumerate(sums[1:].tolist(), start=2):
        size = last_size if number == len(sums) else _BLOCK_BYTES + ROOM
        moved = [int(effects[size - 1 - k, (state >> 8 * k) & 0xFF]) for k in range(ROOM)]
        state = value ^ moved[0] ^ moved[1] ^ moved[2] ^ moved[3]
    return state


@functools.cache
def _effects() -> Numbers:
    """[ROOM + _BLOCK_BYTES, 256]: what a byte does, by its distance from the end and its value.

    What stands in the room of a piece has not been read yet: it is only moved.
    """
    byte = np.arange(256, dtype=np.uint32)
    table = byte
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    rows = [byte << np.uint32(8 * (ROOM - 1 - place)) for place in range(ROOM)]
    rows.append(table)
    while len(rows) < ROOM + _BLOCK_BYTES:
        rows.append(table[rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.stack(rows)


_LENGTH = struct.Struct("<Q")
_HEAD = 12  # the length and its checksum
_FOOT = 4
_BATCH_BYTES = 1 << 18  # read at once: what is done with them stays in a processor's cache
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Records:
    """Some consecutive records of a file.

    Attributes:
      path: the file.
      first: the number of the first of them, from 1.
      offsets: where in the file each begins, in bytes.
      contents: the bytes of each.
    """

    path: Path
    first: int
    offsets: Sequence[int]
    contents: Sequence[bytes]

    def place(self, index: int) -> str:
        """Says where one of them is, for messages."""
        return f"{self.path}, record {self.first + index} (from byte {self.offsets[index]})"


def read_records(path: Path) -> Iterator[Records]:
    """Yields the records of a file in order, some at a time, with their checksums compared.

    Raises:
      DataError: the file is missing, ends within a record, or a checksum differs.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if not size:  # nothing can be mapped
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield from _batches(path, content, size)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a file of records, whole or not at all."""
    with staged(path) as temporary, temporary.open("wb") as file:
        pending: list[bytes] = []
        for record in records:
            pending.append(record)
            if sum(map(len, pending)) >= _BATCH_BYTES or len(pending) == 1024:
                file.write(_framed(pending))
                pending = []
        if pending:
            file.write(_framed(pending))


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
    """Compares the two checksums of each record."""
    if not offsets:
        return
    data = np.frombuffer(content[offsets[0] : stops[-1]], np.uint8).copy()
    edges = np.column_stack([np.array(offsets) + _HEAD, stops]).ravel() - offsets[0]
    expected = _stored(data, edges)
    found = masked_crc32c(data, edges)
    wrong = np.flatnonzero(expected != found)
    if not len(wrong):
        return
    record, part = divmod(int(wrong[0]), 2)
    raise _damaged(
        f"{path}, record {number + record} (from byte {offsets[record]}): the checksum of its "
        f"{('length', 'content')[part]} is {expected[wrong[0]]:#010x} in the file, but its bytes "
        f"have {found[wrong[0]]:#010x}.",
        content,
    )


def _cut_off(path: Path, content: mmap.mmap, number: int, start: int, size: int) -> DataError:
    """Says why no whole record begins at a place."""
    place = f"{path}, record {number} (from byte {start})"
    if size - start < _HEAD:
        return _damaged(f"{place}: the file ends within the record's length.", content)
    data = np.frombuffer(content[start : start + _HEAD], np.uint8).copy()
    edges = np.array([_HEAD])
    expected = _stored(data, edges)[0]
    found = masked_crc32c(data, edges)[0]
    if expected != found:
        told = f"the checksum of its length is {expected:#010x} in the file, but its bytes have"
        return _damaged(f"{place}: {told} {found:#010x}.", content)
    length = _LENGTH.unpack_from(content, start)[0]
    left = max(size - start - _HEAD - _FOOT, 0)
    return _damaged(
        f"{place}: {length:,} bytes of content were expected, and the file ends after {left:,}.",
        content,
    )


def _damaged(told: str, content: mmap.mmap) -> DataError:
    if content[:2] == _GZIP_MAGIC:
        return DataError(f"{told} The file is packed; unpack it:  gunzip")
    return DataError(f"{told} The file is damaged or no TFRecord file; copy it again.")


def _stored(data: Bytes, edges: Places) -> Numbers:
    """The checksums that stand before each of `edges`."""
    stored = np.zeros(len(edges), np.uint32)
    for byte in range(_FOOT):
        stored |= data[edges - _FOOT + byte].astype(np.uint32) << np.uint32(8 * byte)
    return stored


def _framed(records: Sequence[bytes]) -> bytes:
    """The bytes of records with their lengths and checksums."""
    room = bytes(_FOOT)
    parts = [part for r in records for part in (_LENGTH.pack(len(r)), room, r, room)]
    data = np.frombuffer(b"".join(parts), np.uint8).copy()
    lengths = np.array([len(part) for part in parts]).reshape(-1, 2).sum(axis=1)
    edges = np.cumsum(lengths)
    checksums = masked_crc32c(data.copy(), edges)
    for byte in range(_FOOT):
        data[edges - _FOOT + byte] = (checksums >> np.uint32(8 * byte)) & np.uint32(0xFF)
    return bytes(data)


# The records of tensor2tensor's files: `tf.train.Example`, read and written without TensorFlow.
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
    """One list of an Example.

    Attributes:
      kind: of what.
      packed: int64: the varints; float: the little-endian numbers; one after another.
      items: bytes: the list.
    """

    kind: Kind
    packed: bytes = b""
    items: Sequence[bytes] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the list has no entry."""
        return not self.packed and not self.items

    def to_list(self) -> list[int] | list[float] | list[bytes]:
        """Returns the list; ValueError if it is malformed."""
        if self.kind == "bytes":
            return list(self.items)
        rows = int64_rows if self.kind == "int64" else float_rows
        numbers: list[int] | list[float] = rows([self.packed]).values.tolist()
        return numbers


def parse_example(record: bytes) -> dict[str, Values]:
    """Returns the lists of an Example by name, without those of no kind; skips unknown fields.

    Raises:
      ValueError: it is no Example; says why.
    """
    lists: dict[str, Values] = {}
    for number, wire, start, stop in _fields(record, 0, len(record)):
        if number == 1 and wire == _BYTES:
            for entry, entry_wire, begin, end in _fields(record, start, stop):
                if entry == 1 and entry_wire == _BYTES:
                    name, values = _entry(record, begin, end)
                    if values is None:
                        lists.pop(name, None)
                    else:
                        lists[name] = values
    return lists


def int64_rows(packed: Sequence[bytes]) -> Ragged:
    """Returns the integers of lists in one step, as int64; ValueError if one is malformed."""
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
    """Returns the numbers of lists in one step, as float32; ValueError if one is malformed."""
    sizes = np.fromiter(map(len, packed), np.int64, len(packed))
    if (sizes % _FLOAT.itemsize).any():
        raise ValueError("a list of floats ends within a number")
    offsets = np.concatenate([[0], np.cumsum(sizes // _FLOAT.itemsize)]).astype(np.int64)
    values = np.frombuffer(b"".join(packed), _FLOAT).astype(np.float32)
    return Ragged(values, offsets)


def write_example(lists: Mapping[str, Sequence[int] | Sequence[float] | Sequence[bytes]]) -> bytes:
    """Returns an Example with these lists, none of them empty; the kind is that of the values."""
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


def _entry(record: bytes, start: int, stop: int) -> tuple[str, Values | None]:
    """A name and its list."""
    name = ""
    values: Values | None = None
    for number, wire, begin, end in _fields(record, start, stop):
        if number == 1 and wire == _BYTES:
            name = record[begin:end].decode()
        elif number == 2 and wire == _BYTES:
            values = _feature(record, begin, end)
    return name, values


def _feature(record: bytes, start: int, stop: int) -> Values | None:
    """The last kind of list that is there; what is there of it several times is one list."""
    values: Values | None = None
    for number, wire, begin, end in _fields(record, start, stop):
        kind = _KINDS.get(number) if wire == _BYTES else None
        if kind is not None:
            more = _list(record, begin, end, kind)
            if values is not None and values.kind == kind:
                more = Values(kind, values.packed + more.packed, [*values.items, *more.items])
            values = more
    return values


def _list(record: bytes, start: int, stop: int, kind: Kind) -> Values:
    """The values of a list, packed or one by one: the bytes of the numbers are the same."""
    single = {"bytes": _BYTES, "float": _FIXED32, "int64": _VARINT}[kind]
    parts = [
        record[begin:end]
        for number, wire, begin, end in _fields(record, start, stop)
        if number == 1 and wire in (single, _BYTES)
    ]
    return Values(kind, items=parts) if kind == "bytes" else Values(kind, packed=b"".join(parts))


def _fields(record: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, wire type, start, stop of the content) of each field of a message."""
    while start < stop:
        tag, start = _varint(record, start, stop)
        wire = tag & 7
        if wire == _BYTES:
            size, start = _varint(record, start, stop)
            end = start + size
        elif wire == _VARINT:
            _, end = _varint(record, start, stop)
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


def _varint(record: bytes, start: int, stop: int) -> tuple[int, int]:
    """A number of 7 bits a byte, the low ones first, and where it ends."""
    if start < stop and record[start] < 0x80:  # most are of one byte
        return record[start], start + 1
    number = 0
    for place in range(start, min(stop, start + _MAX_VARINT_BYTES)):
        byte = record[place]
        number |= (byte & 0x7F) << (7 * (place - start))
        if byte < 0x80:
            return number, place + 1
    raise ValueError(f"a number at byte {start} does not end")


def _field_bytes(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | _BYTES]) + _varint_of(len(content)) + content


def _varint_of(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    digits = []
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
