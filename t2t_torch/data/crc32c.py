"""The checksum of TFRecord files, of many pieces of bytes at once.

CRC-32C (Castagnoli), RFC 3720 appendix B.4; masked as in TensorFlow's `tsl/lib/hash/crc32c.h`.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
