"""Reader of TensorFlow's checkpoints (version 2), without TensorFlow.

    checkpoint                         text: the name of the newest checkpoint
    model.ckpt-600.index               table: name -> type, shape, file, offset, size, checksum
    model.ckpt-600.data-00000-of-00002 the bytes of tensors

The index is a table of LevelDB: blocks of entries with prefix-compressed keys, and an index of
blocks.  The values are protocol buffers.  Variables that were partitioned are refused.

Source: TensorFlow's `core/util/tensor_bundle`, `core/protobuf/tensor_bundle.proto`,
`tsl/lib/io/table`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.data.tfrecord import masked_crc32c, message_types, parse_message
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

_MAX_VARINT_BYTES = 10
_MESSAGES = message_types(
    """
    BundleHeaderProto 1:int32:num_shards 2:int32:endianness
    Dim 1:int64:size
    TensorShapeProto 2:+Dim:dim 3:bool:unknown_rank
    BundleEntryProto 1:int32:dtype 2:TensorShapeProto:shape 3:int32:shard_id 4:int64:offset
    5:int64:size 6:fixed32:crc32c 7:+bytes:slices
    """
)


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
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0


class TensorFlowCheckpoint:
    """A checkpoint of TensorFlow.

    Reading the index verifies the checksums of its blocks, and that every tensor lies in a data
    file.  Reading a tensor verifies its checksum.

    Attributes:
      prefix: path of the checkpoint without suffix, such as `run/model.ckpt-600`.
      tensors: entries by name.

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
            entries = [_entry(key, value) for key, value in pairs.items()]
        except (ValueError, struct.error) as error:
            raise CheckpointError(f"{self._index} is damaged: {error}. {_REMEDY}") from None
        self.tensors = {entry.name: entry for entry in entries}
        stem = f"{prefix.name}.data-"
        self._files = [
            prefix.with_name(f"{stem}{number:05d}-of-{self._shards:05d}")
            for number in range(self._shards)
        ]
        self._check_places()

    def read(self, name: str) -> npt.NDArray[Any]:
        """Returns a tensor; bfloat16 becomes float32.

        Raises:
          CheckpointError: the checksum differs, or the type is not numeric.
        """
        entry = self.tensors[name]
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
        for entry in sorted(self.tensors.values(), key=lambda one: (one.shard, one.offset)):
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


def _number_of_shards(content: bytes) -> int:
    """Returns the number of data files in a `BundleHeaderProto`."""
    if not content:
        raise ValueError("it has no header")
    header = parse_message(_MESSAGES["BundleHeaderProto"], content)
    if header.endianness:
        raise ValueError("its numbers are big-endian, which is not supported")
    if not 1 <= header.num_shards <= 99_999:
        raise ValueError(f"its header names {header.num_shards} data files")
    return int(header.num_shards)


def _entry(key: bytes, value: bytes) -> TensorEntry:
    """Returns the entry of a `BundleEntryProto`."""
    name = key.decode(errors="backslashreplace")
    entry = parse_message(_MESSAGES["BundleEntryProto"], value)
    if entry.slices or key.startswith(b"\0"):
        raise ValueError(f"{name!r} is partitioned into slices, which is not supported")
    shape = tuple(dimension.size for dimension in entry.shape.dim)
    if entry.shape.unknown_rank or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{name} has {len(shape)} dimensions, or an unknown number of them")
    if min(entry.shard_id, entry.offset, entry.size, *shape) < 0:
        raise ValueError(f"a number of {name} is negative")
    dtype = "string" if entry.dtype == _STRING else _DTYPES.get(entry.dtype)
    if dtype is None:
        raise ValueError(f"{name} is of TensorFlow's type {entry.dtype}, which is not supported")
    if dtype != "string":
        itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if entry.size != (expected := math.prod(shape) * itemsize):
            raise ValueError(
                f"{name}, {dtype} {list(shape)}, has {entry.size} bytes, not {expected}"
            )
    place = (entry.shard_id, entry.offset, entry.size, entry.crc32c)
    return TensorEntry(name, dtype, shape, *place)


def read_varint(record: bytes, start: int, stop: int) -> tuple[int, int]:
    """Returns a varint (7 bits per byte, low bits first) and its end."""
    number = 0
    for place in range(start, min(stop, start + _MAX_VARINT_BYTES)):
        byte = record[place]
        number |= (byte & 0x7F) << (7 * (place - start))
        if byte < 0x80:
            return number, place + 1
    raise ValueError(f"a number at byte {start} does not end")
