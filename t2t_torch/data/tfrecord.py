"""Files of records that TensorFlow wrote, read without it.

A record is its length (8 bytes, little endian), the checksum of the length, its bytes, and their
checksum.  Source: TensorFlow's `tsl/lib/io/record_writer.h`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t2t_torch.data.crc32c import Bytes, Numbers, Places, masked_crc32c
from t2t_torch.data.staging import staged
from t2t_torch.errors import DataError

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
