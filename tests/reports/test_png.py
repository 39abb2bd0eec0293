from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from t2t_torch.reports.plots import png


@pytest.mark.parametrize(("channels", "colour_type"), [(1, 0), (2, 4), (3, 2), (4, 6)])
def test_a_picture_is_read_back(channels, colour_type):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    file = png(pixels)
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(file):
        (length,) = struct.unpack(">I", file[place : place + 4])
        kind, content = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", file[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(kind + content)
        chunks[kind] = content
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBB", chunks[b"IHDR"][:10]) == (7, 5, 8, colour_type)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(5, 1 + 7 * channels)
    assert not rows[:, 0].any()
    np.testing.assert_array_equal(rows[:, 1:].reshape(5, 7, channels), pixels)
