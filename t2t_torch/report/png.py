"""Pictures as PNG files: W3C, Portable Network Graphics, third edition."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # grey, grey and alpha, RGB, RGBA


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Returns the file of a picture, [height, width, channels], with 1 to 4 channels."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = pixels.reshape(height, width * channels)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    content = zlib.compress(unfiltered.tobytes(), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
