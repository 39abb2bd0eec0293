"""Reader of TensorFlow's checkpoints (version 2), without TensorFlow.

    checkpoint                         text: the name of the newest checkpoint
    model.ckpt-600.index               table: name -> type, shape, file, offset, size, checksum
    model.ckpt-600.data-00000-of-00002 the bytes of tensors

The index is a table of LevelDB: blocks of entries with prefix-compressed keys, and an index of
blocks.  The values are protocol buffers.  A variable that was partitioned has an entry with its
slices, and each slice has an entry of its own.

Source: TensorFlow's `core/util/tensor_bundle`, `tsl/lib/io/table`, `core/lib/strings/ordered_code`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.data.tfrecord import masked_crc32c, message_fields, read_varint
from t2t_torch.errors import CheckpointError
from t2t_torch.files import open_regular, read_bytes

_MAGIC = struct.Struct("<Q").pack(0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # of a block: type of compression, checksum
_MAX_DIMENSIONS = 254
_SNAPPY = 1
_STRING = 7

_DTYPES: Mapping[int, str] = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64",
    10: "bool", 14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""Types of tensors by their number in TensorFlow's `types.proto`."""

_REMEDY = "Copy the checkpoint again, or import another one with --checkpoint=STEP."

Slice = tuple[tuple[int, int], ...]
"""Start and length of each dimension of a slice; length -1 for the whole dimension."""


@dataclass(frozen=True)
class TensorEntry:
    """Description of a tensor in the index.

    Attributes:
      name: name of the variable.
      dtype: NumPy's name of the type, "bfloat16", or "string", which cannot be read.
      shape: its shape.
      shard: number of the data file.
      offset: position of its first byte.
      size: number of its bytes.
      checksum: masked CRC-32C of its bytes.
      slices: slices of a partitioned variable, which then has no bytes itself.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0
    slices: tuple[Slice, ...] = ()


class TensorFlowCheckpoint:
    """A checkpoint of TensorFlow.

    Reading the index verifies the checksums of its blocks, and that every tensor lies in a data
    file.  Reading a tensor verifies its checksum.

    Attributes:
      prefix: path of the checkpoint without suffix, such as `run/model.ckpt-600`.
      tensors: entries by name, without the slices of partitioned variables.

    Args:
      prefix: the path.

    Raises:
      CheckpointError: a file is missing, damaged, compressed, or of another format.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self._index = prefix.with_name(f"{prefix.name}.index")
        content = _content_of(self._index)
        try:
            pairs = dict(_table(content))
            self._shards = _number_of_shards(pairs.pop(b"", b""))
            entries = {key: _entry(key, value) for key, value in pairs.items()}
        except (ValueError, struct.error) as error:
            raise CheckpointError(f"{self._index} is damaged: {error}. {_REMEDY}") from None
        self._entries = {key: entry for key, entry in entries.items() if not key.startswith(b"\0")}
        self._slices = {key: entry for key, entry in entries.items() if key.startswith(b"\0")}
        self.tensors = {entry.name: entry for entry in self._entries.values()}
        self._files = [self._data_file(number) for number in range(self._shards)]
        self._check_places()

    def read(self, name: str) -> npt.NDArray[Any]:
        """Returns a tensor; bfloat16 becomes float32.

        Raises:
          CheckpointError: the checksum differs, slices are missing, or the type is not numeric.
        """
        entry = self.tensors[name]
        if not entry.slices:
            return self._read(entry)
        whole = np.zeros(entry.shape, _numpy_type(entry.dtype))
        filled = np.zeros(entry.shape, np.bool_)
        for piece in entry.slices:
            place = tuple(
                slice(start, None if length < 0 else start + length) for start, length in piece
            )
            values = self._read(self._slices[slice_key(name, piece)])
            if whole[place].shape != values.shape or filled[place].any():
                raise self._damaged(f"the slices of {name} do not join to {list(entry.shape)}")
            whole[place], filled[place] = values, True
        return whole

    def _read(self, entry: TensorEntry) -> npt.NDArray[Any]:
        if entry.dtype == "string":
            raise self._damaged(f"{entry.name} holds strings, which are no weights")
        with open_regular(self._files[entry.shard]) as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if len(content) != entry.size or masked_crc32c(content) != entry.checksum:
            raise CheckpointError(
                f"{self._files[entry.shard]} is damaged: the checksum of {entry.name} (bytes "
                f"{entry.offset:,} to {entry.offset + entry.size:,}) is not that of the index. "
                f"{_REMEDY}"
            )
        if entry.dtype == "bfloat16":
            halves = np.frombuffer(content, "<u2").astype(np.uint32)
            return (halves << 16).view(np.float32).reshape(entry.shape)
        stored = np.dtype(entry.dtype).newbyteorder("<")
        return np.frombuffer(content, stored).astype(entry.dtype).reshape(entry.shape)

    def _data_file(self, number: int) -> Path:
        name = f"{self.prefix.name}.data-{number:05d}-of-{self._shards:05d}"
        return self.prefix.with_name(name)

    def _check_places(self) -> None:
        """Checks that all tensors lie in the data files, one after another, before reading any."""
        sizes = []
        for path in self._files:
            try:
                sizes.append(path.stat().st_size)
            except OSError as error:
                raise CheckpointError(
                    f"Cannot read {path}: {error.strerror}. A checkpoint is its .index and all of "
                    f"its {self._shards} .data files. {_REMEDY}"
                ) from None
        ends = [0] * self._shards
        entries = [*self._entries.values(), *self._slices.values()]
        for entry in sorted(entries, key=lambda entry: (entry.shard, entry.offset)):
            if entry.slices:
                self._check_slices(entry)
                continue
            if not 0 <= entry.shard < self._shards:
                raise self._damaged(f"{entry.name} is in data file {entry.shard} of {self._shards}")
            if entry.size and entry.offset < ends[entry.shard]:
                raise self._damaged(f"{entry.name} overlaps another tensor")
            ends[entry.shard] = max(ends[entry.shard], entry.offset + entry.size)
            if ends[entry.shard] > sizes[entry.shard]:
                raise CheckpointError(
                    f"{self._files[entry.shard]} is cut off: it has {sizes[entry.shard]:,} bytes, "
                    f"and {entry.name} ends at byte {ends[entry.shard]:,}. {_REMEDY}"
                )

    def _check_slices(self, entry: TensorEntry) -> None:
        """Checks that the slices of a variable are there, and have all of its values."""
        total = 0
        for piece in entry.slices:
            part = self._slices.get(slice_key(entry.name, piece))
            if part is None or len(piece) != len(entry.shape) or part.dtype != entry.dtype:
                raise self._damaged(f"a slice of {entry.name} is missing or of another kind")
            total += math.prod(part.shape)
        if total != math.prod(entry.shape):
            raise self._damaged(
                f"the slices of {entry.name} have {total:,} of {math.prod(entry.shape):,} values"
            )

    def _damaged(self, fault: str) -> CheckpointError:
        return CheckpointError(f"{self._index} is damaged: {fault}. {_REMEDY}")


def find_checkpoint(folder: Path, wanted: str = "") -> Path:
    """Returns the prefix of a checkpoint in a folder.

    Args:
      folder: the run directory.
      wanted: a step, or a name such as "model.ckpt-600" or "averaged.ckpt-0"; "": the one that the
        file `checkpoint` names, else that of the greatest step.

    Raises:
      CheckpointError: there is no such checkpoint.
    """
    available = {path.stem: step_of(path.stem) for path in folder.glob("*.index")}
    named = wanted or _newest_named(folder)
    if wanted.isdecimal():
        named = next((name for name, step in available.items() if step == int(wanted)), wanted)
    elif not wanted and named not in available and available:
        named = max(available, key=lambda name: available[name])
    if named in available:
        return folder / named
    if not available and any(folder.glob("*.meta")):
        raise CheckpointError(
            f"{folder} has checkpoints of TensorFlow's first format, without .index files. Save "
            "them again with tf.train.Saver() of TensorFlow 1."
        )
    names = ", ".join(sorted(available, key=lambda name: available[name])) or "none"
    raise CheckpointError(
        f"{folder} has no checkpoint {named or 'model.ckpt-N'!r}; it has: {names}."
    )


def step_of(name: str) -> int:
    """Returns the step at the end of a checkpoint's name; -1 if there is none."""
    match = re.search(r"-(\d{1,18})$", name)
    return int(match[1]) if match else -1


def _newest_named(folder: Path) -> str:
    """Returns the name of the checkpoint in the file `checkpoint`; "" if there is none."""
    try:
        with open_regular(folder / "checkpoint") as file:
            text = file.read(1 << 16).decode(errors="replace")
    except OSError:
        return ""
    match = re.search(r'^model_checkpoint_path: "([^"\n]+)"', text, re.MULTILINE)
    return re.split(r"[/\\]", match[1])[-1] if match else ""  # often a path of another machine


# The index: a table of sorted keys.


def _content_of(path: Path) -> bytes:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {error.strerror}. {_REMEDY}") from None
    if len(content) < _FOOTER_BYTES or not content.endswith(_MAGIC):
        raise CheckpointError(
            f"{path} is no index of a TensorFlow checkpoint, or is cut off: its last bytes are not "
            f"those of a table. {_REMEDY}"
        )
    return content


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table in order; raises ValueError if it is malformed."""
    footer = len(content) - _FOOTER_BYTES
    _, place = _handle(content, footer)  # of the filters, which TensorFlow does not write
    index, _ = _handle(content, place)
    last: bytes | None = None
    end = 0
    for _, value in _block(content, *index):
        handle, _ = _handle(value, 0)
        if handle[0] < end:
            raise ValueError(f"a block at byte {handle[0]} overlaps another")
        end = sum(handle)
        for key, entry in _block(content, *handle):
            if last is not None and key <= last:
                raise ValueError(f"its keys are not in order at byte {handle[0]}")
            last = key
            yield key, entry


def _handle(content: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Returns the offset and the size of a block, and the position after them."""
    offset, place = read_varint(content, place, len(content))
    size, place = read_varint(content, place, len(content))
    return (offset, size), place


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block, after its checksum was verified."""
    end = offset + size
    if end + _TRAILER_BYTES > len(content):
        raise ValueError(f"a block of {size} bytes at byte {offset} is not in the file")
    (checksum,) = struct.unpack_from("<I", content, end + 1)
    if masked_crc32c(content[offset : end + 1]) != checksum:
        raise ValueError(f"the checksum of the block at byte {offset} differs")
    if content[end] == _SNAPPY:
        raise ValueError("it is compressed with Snappy, which TensorFlow does not write by default")
    if content[end] or size < 4:
        raise ValueError(f"the block at byte {offset} is of an unknown kind ({content[end]})")
    (restarts,) = struct.unpack_from("<I", content, end - 4)
    stop = end - 4 - 4 * restarts
    if stop < offset:
        raise ValueError(f"the block at byte {offset} has {restarts} restarts")
    key, place = b"", offset
    while place < stop:
        shared, place = read_varint(content, place, stop)
        added, place = read_varint(content, place, stop)
        length, place = read_varint(content, place, stop)
        if shared > len(key) or place + added + length > stop:
            raise ValueError(f"an entry at byte {place} is longer than its block")
        key = key[:shared] + content[place : place + added]
        place += added + length
        yield key, content[place - length : place]


# The values of the index: protocol buffers.


def _number_of_shards(header: bytes) -> int:
    """Returns the number of data files in a `BundleHeaderProto`."""
    fields = dict(_numbers(header, "the header", (1, 2)))
    if not header:
        raise ValueError("it has no header")
    if fields.get(2, 0):
        raise ValueError("its numbers are big-endian, which is not supported")
    shards = fields.get(1, 0)
    if not 1 <= shards <= 99_999:
        raise ValueError(f"its header names {shards} data files")
    return shards


def _entry(key: bytes, value: bytes) -> TensorEntry:
    """Returns the entry of a `BundleEntryProto`."""
    name = key.decode(errors="backslashreplace")
    numbers = dict(_numbers(value, name, (1, 3, 4, 5)))
    shape: tuple[int, ...] = ()
    checksum = 0
    slices = []
    for field, wire, start, stop in message_fields(value, 0, len(value)):
        if field == 2 and wire == 2:
            shape = _shape(value[start:stop], name)
        elif field == 6 and wire == 5:
            (checksum,) = struct.unpack_from("<I", value, start)
        elif field == 7 and wire == 2:
            slices.append(_slice(value[start:stop], name))
    number = numbers.get(1, 0)
    offset, size = numbers.get(4, 0), numbers.get(5, 0)
    if number == _STRING:
        return TensorEntry(name, "string", shape, numbers.get(3, 0), offset, size)
    if number not in _DTYPES:
        raise ValueError(f"{name} is of TensorFlow's type {number}, which is not supported")
    dtype = _DTYPES[number]
    expected = math.prod(shape) * _numpy_type(dtype).itemsize
    if dtype == "bfloat16":
        expected //= 2
    if size != expected and not slices:
        raise ValueError(f"{name}, {dtype} {list(shape)}, has {size} bytes, not {expected}")
    return TensorEntry(name, dtype, shape, numbers.get(3, 0), offset, size, checksum, tuple(slices))


def _numbers(message: bytes, name: str, wanted: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yields the integers of a message by field; raises ValueError if one is negative."""
    for field, wire, start, stop in message_fields(message, 0, len(message)):
        if field in wanted and wire == 0:
            number, _ = read_varint(message, start, stop)
            if number >= 1 << 63:
                raise ValueError(f"a number of {name} is negative")
            yield field, number


def _shape(message: bytes, name: str) -> tuple[int, ...]:
    """Returns the shape of a `TensorShapeProto`."""
    sizes = []
    for field, wire, start, stop in message_fields(message, 0, len(message)):
        if field == 2 and wire == 2:
            dimension = dict(_numbers(message[start:stop], name, (1,)))
            sizes.append(dimension.get(1, 0))
        elif field == 3:
            raise ValueError(f"the shape of {name} is unknown")
    if len(sizes) > _MAX_DIMENSIONS:
        raise ValueError(f"{name} has {len(sizes)} dimensions")
    return tuple(sizes)


def _slice(message: bytes, name: str) -> Slice:
    """Returns the slice of a `TensorSliceProto`."""
    extents = []
    for field, wire, start, stop in message_fields(message, 0, len(message)):
        if field == 1 and wire == 2:
            extent = dict(_numbers(message[start:stop], name, (1, 2)))
            extents.append((extent.get(1, 0), extent.get(2, -1)))
    return tuple(extents)


def _numpy_type(dtype: str) -> np.dtype[Any]:
    """Returns the type that a tensor is read as."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


# Keys of slices, in TensorFlow's order-preserving code.


def slice_key(name: str, piece: Slice) -> bytes:
    """Returns the key of a slice of a partitioned variable."""
    text = name.encode().replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff")
    key = _unsigned(0) + text + b"\x00\x01" + _unsigned(len(piece))
    return key + b"".join(_signed(number) for extent in piece for number in extent)


def _unsigned(number: int) -> bytes:
    """Returns the code of a number of at least 0: its length and its bytes."""
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _signed(number: int) -> bytes:
    """Returns the code of a number: as many leading ones (or zeros) as there are bytes."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    ones = ((1 << length) - 1) << (8 * length - length)
    return ((number & ((1 << 8 * length) - 1)) ^ ones).to_bytes(length, "big")
