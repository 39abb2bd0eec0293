"""Hostile sounds."""

from __future__ import annotations

import functools
import io
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from hostile import add, reader


@reader("sound")
def read_sound(path: Path) -> Any:
    """Opens a sound file within the limits of the server."""
    from t2t_torch.features import Audio
    from t2t_torch.features.audio import SoundLimits
    from t2t_torch.serve.limits import MAX_FRAMES

    return Audio(16000, resample=True).samples_of(path, SoundLimits(MAX_FRAMES))


def wav(
    rate: int = 16000,
    channels: int = 1,
    bits: int = 16,
    kind: int = 1,
    data: bytes = bytes(3200),
    size: int | None = None,
    before: bytes = b"",
) -> bytes:
    """Returns a wav file whose header states anything."""
    width = bits // 8 * channels % 2**16
    head = struct.pack("<HHIIHH", kind, channels, rate, rate * width % 2**32, width, bits)
    size = len(data) if size is None else size
    parts = (
        before + b"fmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    )
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts


for _rate in (0, 1, 999, 384_001, 2**31 - 1, 2**32 - 1):
    add("sound", f"rate_{_rate}.wav", wav(_rate), is_quick=_rate == 1)
for _rate in (1000, 1001, 16001, 383_999, 384_000):
    add("sound", f"rate_{_rate}.wav", wav(_rate, data=bytes(100_000)), is_read=True)
for _channels in (0, 65, 65535):
    add("sound", f"channels_{_channels}.wav", wav(channels=_channels, data=bytes(200_000)))
for _bits in (0, 1, 12, 48, 65535):
    add("sound", f"bits_{_bits}.wav", wav(bits=_bits))
for _kind in (0, 2, 6, 7, 17, 49, 85, 65534, 65535):
    add("sound", f"kind_{_kind}.wav", wav(kind=_kind), is_read=_kind in (2, 6, 7, 17, 49))
add("sound", "size.wav", wav(size=2**31 - 2**17))
add("sound", "no_data.wav", wav(data=b""))
add("sound", "one_sample.wav", wav(data=bytes(2)))
add("sound", "chunks.wav", wav(before=(b"abcd" + bytes(4)) * 200_000), is_read=True)
add("sound", "chunk_size.wav", wav(before=b"abcd" + b"\xff" * 4))
add("sound", "not_finite.wav", wav(bits=32, kind=3, data=b"\xff" * 3200))
add("sound", "loud.wav", wav(bits=64, kind=3, data=struct.pack("<d", 1e308) * 400), is_read=True)
add("sound", "an_hour.wav", lambda path: wav(data=bytes(115_200_000)), is_read=False)
add("sound", "silence_16_minutes.wav", lambda path: wav(data=bytes(31_000_000)), is_read=True)
add("sound", "silence_at_48_kHz.wav", lambda path: wav(48000, data=bytes(31_000_000)), is_read=True)
add(
    "sound",
    "rf64.wav",
    b"RF64\xff\xff\xff\xffWAVEds64" + struct.pack("<IQQQI", 28, 2**62, 2**62, 2**60, 0),
)


@functools.cache
def written(kind: str, frames: int = 8000, channels: int = 1, rate: int = 16000) -> bytes:
    """Returns a noise as a file."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).normal(size=(frames, channels)) * 0.1
    soundfile.write(file, noise, rate, format=kind)
    return file.getvalue()


def silence(kind: str, frames: int, channels: int = 1, rate: int = 16000) -> bytes:
    """Returns silence as a file."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, channels, format=kind) as opened:
        for _ in range(frames >> 20):
            opened.write(np.zeros((1 << 20, channels), np.int16))
    return file.getvalue()


def flac(rate: int, frames: int, channels: int = 1) -> bytes:
    """Returns a FLAC whose header states anything."""
    content = bytearray(written("FLAC"))
    stated = rate << 44 | (channels - 1) << 41 | 15 << 36 | frames
    content[18:26] = stated.to_bytes(8, "big")
    return bytes(content)


for _rate, _frames in ((1, 8000), (0, 8000), (16000, 200_000_000), (16000, 2**36 - 1)):
    add("sound", f"{_rate}_{_frames}.flac", flac(_rate, _frames), is_quick=_frames == 200_000_000)
add("sound", "8_channels_stated.flac", flac(16000, 8000, 8))
add("sound", "no_number.flac", flac(16000, 0), is_read=True)
add("sound", "cut.flac", written("FLAC")[:-3000], is_quick=True)
add("sound", "15_megasamples.flac", lambda path: silence("FLAC", 15 << 20), is_read=True)
add("sound", "16_megasamples.flac", lambda path: silence("FLAC", 16 << 20), is_read=False)
add("sound", "8_channels.flac", lambda path: silence("FLAC", 8 << 20, 8), is_read=True)
add("sound", "at_48_kHz.flac", lambda path: silence("FLAC", 15 << 20, 1, 48000), is_read=True)
add("sound", "at_44_kHz.flac", lambda path: silence("FLAC", 12 << 20, 1, 44100), is_read=True)
add("sound", "at_1_kHz.flac", lambda path: silence("FLAC", 2 << 20, 1, 1000))
add("sound", "silence.ogg", lambda path: silence("OGG", 15 << 20), is_read=True)
add("sound", "silence.mp3", lambda path: silence("MP3", 15 << 20), is_read=True)
_TAG = b"ID3\x04\0\0\x7f\x7f\x7f\x7f"
add("sound", "tag.mp3", _TAG + bytes(100_000))
add(
    "sound",
    "noise.mp3",
    b"\xff\xfb\x90\x00" + bytes(random.Random(0).randbytes(100_000)),
    is_read=True,
    is_quick=True,
)
add("sound", "zeros.mp3", b"\xff\xfb\x90\x00" + bytes(1_000_000), is_read=True)
add("sound", "frames.mp3", (b"\xff\xfb\x10\x00" + bytes(100)) * 9000, is_read=True)
add("sound", "cut.mp3", written("MP3", 80_000)[:9000], is_quick=True)
add("sound", "empty.wav", b"")
add("sound", "text.mp3", b"this is no sound\n" * 1000)
add("sound", "playlist.wav", b"#EXTM3U\nfile:///etc/passwd\n")
add("sound", "midi.wav", b"MThd\0\0\0\x06\0\x01\0\x01\0\x60MTrk" + bytes(100))
for _kind in (
    "MAT4",
    "MAT5",
    "PAF",
    "SVX",
    "NIST",
    "VOC",
    "IRCAM",
    "W64",
    "AVR",
    "HTK",
    "SDS",
    "MPC2K",
    "CAF",
    "XI",
    "PVF",
):
    try:
        is_known = _kind in ("SVX", "NIST", "W64", "CAF")  # whatever the name of the file
        add("sound", f"{_kind.lower()}.wav", written(_kind), is_read=is_known)
    except (soundfile.SoundFileError, ValueError):  # needs a single channel, another rate
        continue

# Damaged files, by chance.

for _kind in ("WAV", "FLAC", "OGG", "MP3", "AIFF", "AU"):
    for _seed in range(8):
        _rng, _file = random.Random(f"{_kind}{_seed}"), bytearray(written(_kind))
        for _ in range(1 + _seed):
            _file[_rng.randrange(4, min(len(_file), 60 * (1 + _seed)))] = _rng.randrange(256)
        add("sound", f"damaged_{_seed}.{_kind.lower()}", bytes(_file), is_read=True)
