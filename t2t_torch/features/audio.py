"""Features of speech: sound files, waveforms, transcripts, the seed of augmentation."""

from __future__ import annotations

import io
import math
import re
import reprlib
import tempfile
import wave
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, require
from t2t_torch.features.feature import Feature, Features, InputSpec
from t2t_torch.features.text import Text
from t2t_torch.files import file_content

Samples = npt.NDArray[np.int16]

LOUDEST = 32767
"""The sample of an amplitude of 1, as in tensor2tensor's AudioEncoder."""

NO_SAMPLE = -32768
"""Padding of waveforms; no sample has this value."""

FRAMES_PER_SECOND = 100

_RATES = 1000, 384_000  # least and greatest sampling rate, in Hz


@dataclass(frozen=True)
class SoundLimits:
    """Limits of a sound file, checked with its header, before anything is decoded.

    Decoding and resampling take about 16 bytes of memory per frame.

    Attributes:
      frames: maximum number of samples of a channel, also after resampling.
      seconds: maximum duration.
      channels: maximum number of channels.
      spend: function called with the number of samples of all channels before they are decoded, or
        of those after resampling if they are more; raises `DataError` if several sounds together
        have too many.
    """

    frames: int = 100_000_000
    seconds: float = math.inf
    channels: int = 64
    spend: Callable[[int], None] = lambda samples: None

    def check(self, name: str, rate: int, channels: int, frames: int, to: int = 0) -> None:
        """Raises DataError if a sound is over the limits.

        Args:
          name: of the sound, for errors.
          rate: sampling rate in Hz.
          channels: number of channels.
          frames: number of samples of a channel.
          to: sampling rate after resampling; 0 without.
        """
        if not (_RATES[0] <= rate <= _RATES[1] and 1 <= channels <= self.channels):
            raise DataError(
                f"{name} has a rate of {rate:,} Hz, channels: {channels}; expected {_RATES[0]:,} "
                f"to {_RATES[1]:,} Hz, and 1 to {self.channels} channels."
            )
        most = min(self.frames, int(min(self.seconds, self.frames / rate) * rate))
        if to > rate:
            most = min(most, self.frames * rate // to)
        if frames > most:
            raise DataError(
                f"{name} has {frames:,} samples at {rate:,} Hz; at most {most:,} are read, "
                f"{most / rate:.0f} s. Cut it:  sox IN.wav OUT.wav trim 0 60 : newfile : restart"
            )


LIMITS = SoundLimits()
_BLOCK = 1 << 18  # samples of all channels that are decoded at once


@dataclass(frozen=True)
class Sound:
    """An opened sound file.

    Attributes:
      name: its name, for errors.
      rate: sampling rate in Hz.
      channels: number of channels.
      frames: number of samples of a channel by the header; None if that does not know it.
      blocks: the samples, -1 to 1, [n, channels] each.
    """

    name: str
    rate: int
    channels: int
    frames: int | None
    blocks: Iterator[npt.NDArray[np.float64]]

    def mono(self, to: int, limits: SoundLimits = LIMITS) -> Samples:
        """Returns the mean of the channels at a sampling rate.  [n].

        Raises:
          DataError: it is damaged, cut off or over the limits, or has samples that are not finite.
        """
        limits.check(self.name, self.rate, self.channels, self.frames or 0, to)
        samples = max(self.channels, to / self.rate)  # of one: decoded, or after resampling
        limits.spend(int((self.frames or 0) * samples))
        # Single precision holds samples of 24 bits, and is half as large.
        data = bytearray()
        for block in self.blocks:
            if not np.isfinite(block).all():
                raise DataError("a sound with samples that are not finite.")
            data += block.mean(1).astype(np.float32).tobytes()
            limits.check(self.name, self.rate, self.channels, len(data) // 4, to)
            limits.spend(int(len(block) * samples) if self.frames is None else 0)
        return int16_of(resample(np.frombuffer(data, np.float32), self.rate, to))


_MAGIC = b"RIFF RF64 riff fLaC OggS ID3 FORM .snd caff NIST_1A".split()
"""First bytes of the formats that soundfile may read; mp3 without ID3 begins with 11 ones."""


def open_sound(source: Path | bytes) -> Sound:
    """Opens a sound file; nothing is decoded yet.

    Wav files of PCM or floats need no library; others, flac, mp3, ogg, aiff, au, caf, w64 and
    NIST SPHERE are read by soundfile.

    Args:
      source: path or content of the file.

    Raises:
      DataError: the file is missing, damaged, or of an unknown format.
    """
    name = "the sound" if isinstance(source, bytes) else f"'{source}'"
    content, kind = file_content(source, "sound"), "no wav file"
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        opened = _open_wav(content, name)
        if not isinstance(opened, str):
            return opened
        kind = f"a wav file of {opened}"
    needs = f"{name} is {kind}. Other formats need soundfile"
    soundfile = require("soundfile", "speech", needs, DataError)
    is_mp3 = content[:1] == b"\xff" and content[1:2] >= b"\xe0"
    try:
        if not is_mp3 and not content.startswith(tuple(_MAGIC)):
            raise ValueError("unknown format")
        # In memory soundfile prints tracebacks, and without the ending it reads no mp3.
        with tempfile.NamedTemporaryFile(suffix=".mp3" if is_mp3 else "") as copy:
            copy.write(content)
            copy.flush()
            file = soundfile.SoundFile(copy.name)
        file.seekable = lambda: False  # else it seeks after each block, which fails at a cut
    except Exception as error:  # soundfile raises errors of many kinds
        raise _unreadable(name, error) from None
    frames = file.frames if 0 <= file.frames < _UNKNOWN_FRAMES else None
    return Sound(name, file.samplerate, file.channels, frames, _blocks(file, name))


_UNKNOWN_FRAMES = 1 << 40  # a stream has 2 ** 63 - 1
_ESTIMATED = ("MP3", "MPEG", "OGG")  # formats whose number of samples may be slightly wrong


def _blocks(file: Any, name: str) -> Iterator[npt.NDArray[np.float64]]:
    """Yields the samples of soundfile's `SoundFile`."""
    count = 0
    with file:
        while True:
            try:
                block = file.read(max(1, _BLOCK // file.channels), "float64", always_2d=True)
            except Exception as error:  # soundfile raises errors of many kinds
                raise _unreadable(name, error) from None
            if not len(block):
                break
            count += len(block)
            yield block
        missing = file.frames - count - (file.format in _ESTIMATED) * (4096 + file.frames // 20)
        if 0 < missing < _UNKNOWN_FRAMES:
            raise DataError(
                f"{name} is cut off or damaged: its header says {file.frames:,} samples, and "
                f"{count:,} can be read."
            )


def _unreadable(name: str, error: Exception) -> DataError:
    why = re.sub(r"^Error opening '[^']*': ", "", str(error)) or type(error).__name__
    return DataError(
        f"{name} is no sound file that can be read ({why}); expected wav, flac, mp3, ogg, aiff or "
        "au."
    )


_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE  # formats of wav files
_UNKNOWN_SIZES = 0x7FFF0000
"""Least size of samples that a program writes which does not know it yet."""


def _open_wav(content: bytes, name: str) -> Sound | str:
    """Opens a wav file; returns the name of a format for soundfile."""
    chunks: dict[bytes, memoryview] = {}
    view, place = memoryview(content), 12
    while place + 8 <= len(content) and b"data" not in chunks:
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        is_known = 0 < size < _UNKNOWN_SIZES
        if content[place : place + 4] == b"data":
            there = len(content) - place - 8
            if is_known and there < size:
                raise DataError(
                    f"{name} is cut off: its header says {size:,} bytes of samples, and {there:,} "
                    "are there."
                )
            size = size if is_known else there
        chunks[content[place : place + 4]] = view[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
    header, data = bytes(chunks.get(b"fmt ", b"")), chunks.get(b"data")
    if len(header) < 16 or data is None:
        raise DataError(f"{name} is a damaged wav file: it has no format or no samples.")
    kind, channels, rate, _, _, bits = np.frombuffer(
        header[:16], np.dtype("<u2,<u2,<u4,<u4,<u2,<u2")
    )[0].item()
    if kind == _EXTENSIBLE and len(header) >= 26:
        kind = int.from_bytes(header[24:26], "little")
    supported = (kind == _PCM and bits in (8, 16, 24, 32)) or (kind == _FLOAT and bits in (32, 64))
    if kind not in (_PCM, _FLOAT):
        return f"the format {kind}"
    if not supported or not channels:
        raise DataError(
            f"{name} is a wav file with samples of {bits} bits, channels: {channels}, rate: {rate} "
            "Hz; expected PCM of 8, 16, 24 or 32 bits, or floats."
        )
    frame = bits // 8 * channels
    return Sound(name, rate, channels, len(data) // frame, _wav_blocks(data, kind, bits, channels))


def _wav_blocks(
    data: memoryview, kind: int, bits: int, channels: int
) -> Iterator[npt.NDArray[np.float64]]:
    frame = bits // 8 * channels
    step = max(1, _BLOCK // channels) * frame
    for start in range(0, len(data) // frame * frame, step):
        piece = data[start : min(start + step, len(data) // frame * frame)]
        yield _amplitudes(piece, kind, bits).reshape(-1, channels)


def _amplitudes(data: memoryview, kind: int, bits: int) -> npt.NDArray[np.float64]:
    if kind == _FLOAT:
        return np.frombuffer(data, f"<f{bits // 8}").astype(np.float64)
    if bits == 24:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3).astype(np.int32)
        return ((parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8) / (2.0**23 - 1)
    if bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128.0) / 127.0
    amplitudes: npt.NDArray[np.float64] = np.frombuffer(data, f"<i{bits // 8}") / (
        2.0 ** (bits - 1) - 1
    )
    return amplitudes


def wav_of(samples: Samples, sample_rate: int) -> bytes:
    """Returns a wav file of 16-bit samples, mono."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, sample_rate, len(samples), "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return content.getvalue()


_ZEROS = 16  # zero crossings of the resampling filter on each side


def resample(samples: npt.NDArray[Any], rate: int, to: int) -> npt.NDArray[Any]:
    """Returns a waveform at another sampling rate, by band-limited interpolation.

    Smith and Gossett 1984, with a Hann window over 16 zero crossings on each side.

    Args:
      samples: [n].
      rate: sampling rate of `samples`.
      to: sampling rate of the result.
    """
    if rate == to:
        return samples
    shared = math.gcd(rate, to)
    step, phases = rate // shared, to // shared  # output i is at i * step / phases
    cutoff = min(1.0, to / rate)
    half = math.ceil(_ZEROS / cutoff)
    count = -(-len(samples) * phases // step)
    padded = np.pad(samples, (half, half + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half)
    taps = np.arange(-half + 1, half + 1)
    rows = max(1, _BLOCK // (2 * half))  # outputs that are computed at once
    result = np.empty(count)
    for phase in range(min(phases, count)):
        distance = taps - (phase * step % phases) / phases
        window = np.where(np.abs(distance) < half, 0.5 + 0.5 * np.cos(np.pi * distance / half), 0)
        weights = cutoff * np.sinc(cutoff * distance) * window
        own = result[phase::phases]
        for start in range(0, len(own), rows):
            numbers = np.arange(start, min(start + rows, len(own)))
            first = (phase + numbers * phases) * step // phases  # sample before the output
            own[start : start + rows] = windows[first + 1].astype(np.float64, copy=False) @ weights
    return result


def int16_of(samples: npt.NDArray[Any]) -> Samples:
    """Returns amplitudes from -1 to 1, [n], as 16-bit samples; louder ones are clipped."""
    whole: Samples = np.empty(len(samples), np.int16)
    for start in range(0, len(samples), _BLOCK):
        block = samples[start : start + _BLOCK].astype(np.float64) * LOUDEST
        whole[start : start + _BLOCK] = np.rint(block).clip(-LOUDEST, LOUDEST)
    return whole


def mel_matrix(
    bins: int, spectrogram_bins: int, sample_rate: int, lowest: float, highest: float
) -> npt.NDArray[np.float64]:
    """Returns the weights of triangular filters, evenly spaced on the mel scale.

    HTK's scale, 1127 ln(1 + f / 700); triangles are linear in mel, without the constant bin, as in
    tf.signal.linear_to_mel_weight_matrix.

    Args:
      bins: number of filters.
      spectrogram_bins: bins of the spectrogram, from 0 to half of the sampling rate.
      sample_rate: in Hz.
      lowest: lower end of the first filter, in Hz.
      highest: upper end of the last filter, in Hz.

    Returns:
      [spectrogram_bins, bins].
    """
    edges = np.linspace(_mel(lowest), _mel(highest), bins + 2)
    places = _mel(np.linspace(0.0, sample_rate / 2, spectrogram_bins)[1:, None])
    rising = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places) / (edges[2:] - edges[1:-1])
    return np.pad(np.maximum(0.0, np.minimum(rising, falling)), ((1, 0), (0, 0)))


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)


def spectrogram(samples: Samples, sample_rate: int, bins: int = 40) -> npt.NDArray[np.uint8]:
    """Returns a picture of a waveform: logarithms of mel energies, [bins, frames], low ones last.

    Args:
      samples: [n].
      sample_rate: in Hz.
      bins: number of mel filters.
    """
    hop = sample_rate // FRAMES_PER_SECOND
    length = 5 * hop // 2
    count = max(1, -(-len(samples) // hop))
    padded = np.pad(samples / LOUDEST, (0, count * hop + length - len(samples)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[: count * hop : hop]
    size = 1 << (length - 1).bit_length()
    magnitudes = np.abs(np.fft.rfft(frames * np.hanning(length), size))
    mel = magnitudes @ mel_matrix(bins, size // 2 + 1, sample_rate, 20.0, sample_rate / 2)
    levels = np.log(np.maximum(mel, 1e-3)).T[::-1]
    scaled = (levels - levels.min()) / max(float(np.ptp(levels)), 1e-9)
    picture: npt.NDArray[np.uint8] = (255.0 * scaled).astype(np.uint8)
    return picture


_LOUDEST_FLOAT = 4.0  # samples may be a little above 1; those of 16 bits as floats are not


@dataclass(frozen=True)
class Audio(Feature):
    """A mono waveform of 16-bit samples; `[B, frames, samples per frame]` int16 in a batch.

    A position is a frame of 10 ms.  The samples after the end are `NO_SAMPLE`.

    Attributes:
      sample_rate: sampling rate in Hz.
      resample: True to convert files of other sampling rates, and to average channels; False to
        refuse them.
    """

    arrow_type: ClassVar[str] = "list<int16>"
    padding: ClassVar[int] = NO_SAMPLE

    sample_rate: int = 16000
    resample: bool = False

    def __post_init__(self) -> None:
        if not _RATES[0] <= self.sample_rate <= _RATES[1]:
            raise DataError(
                f"sample_rate={self.sample_rate}: expected {_RATES[0]:,} to {_RATES[1]:,} Hz."
            )

    @property
    def samples_per_frame(self) -> int:
        """Number of samples of 10 ms."""
        return self.sample_rate // FRAMES_PER_SECOND

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Frames, samples."""
        return (None, self.samples_per_frame)

    def encode(self, value: Any) -> Any:
        """Returns the samples of whole frames, `NO_SAMPLE` after the end.

        Args:
          value: path of a sound file (`pathlib.Path`), its content (bytes, or as a base64 text),
            or samples as a list or an array: integers of 16 bits, or floats from -1 to 1.

        Raises:
          DataError: there is no such sound, or it has another sampling rate or several channels.
        """
        return self.framed(self.samples_of(value))

    def samples_of(self, value: Any, limits: SoundLimits = LIMITS) -> Samples:
        """Returns the samples of a value, [n]; see `encode`."""
        if isinstance(value, str):
            value = file_content(value, "sound")
        if isinstance(value, Path | bytes):
            samples = self._converted(value, limits)
        else:
            samples = _samples_of_list(value)
        if len(samples) < 2:
            raise DataError("a sound without samples; at least two are needed.")
        return samples

    def _converted(self, source: Path | bytes, limits: SoundLimits) -> Samples:
        """Returns the waveform of a file at the sampling rate of the feature, mono."""
        sound = open_sound(source)
        if not self.resample and (sound.rate, sound.channels) != (self.sample_rate, 1):
            of = "1 channel" if sound.channels == 1 else f"{sound.channels} channels"
            raise DataError(
                f"{sound.name} has {sound.rate} Hz and {of}; expected {self.sample_rate} Hz and 1 "
                f"channel. Convert it:  sox IN.wav -r {self.sample_rate} -c 1 OUT.wav  or let the "
                'problem do it: "settings": {"resample": true} in a declaration, or resample = '
                "True."
            )
        return sound.mono(self.sample_rate, limits)

    def framed(self, samples: npt.NDArray[Any]) -> Samples:
        """Returns samples [n] as whole frames, `NO_SAMPLE` after the end.  [frames * samples]."""
        frames = -(-len(samples) // self.samples_per_frame)
        whole: Samples = np.full(frames * self.samples_per_frame, NO_SAMPLE, np.int16)
        whole[: len(samples)] = samples
        return whole

    def decode(self, ids: Iterable[int]) -> Samples:
        """Returns the samples, [n] int16."""
        samples: Samples = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), np.int16)
        own: Samples = samples[samples != NO_SAMPLE]
        return own

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the sampling rate, as `size`."""
        return InputSpec(name, "audio", "int16", size=self.sample_rate, shape=(-1,))

    def example(self, *, as_list: bool) -> Any:
        """Returns the beginning of a wav file in base64."""
        return "UklGR..."


def _samples_of_list(value: Any) -> Samples:
    """Returns samples from a list or an array of 16-bit integers, or of floats from -1 to 1."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.zeros((0, 0))
    if array.ndim == 1 and array.dtype.kind == "f" and np.isfinite(array).all():
        if array.size and np.abs(array).max() > _LOUDEST_FLOAT:
            raise DataError(
                f"a sound with samples up to {np.abs(array).max():g}: expected floats from -1 to "
                "1, or integers of 16 bits."
            )
        return int16_of(array)
    if array.ndim == 1 and array.dtype.kind in "iu":
        if array.size and (array.min() < NO_SAMPLE or array.max() > LOUDEST):
            raise DataError("a sound with integers that are no 16-bit samples.")
        return array.clip(-LOUDEST, LOUDEST).astype(np.int16)
    raise DataError(
        f"{reprlib.repr(value)} is no sound: expected a list of samples, integers of 16 bits or "
        "floats from -1 to 1."
    )


@dataclass(frozen=True)
class Transcript(Text):
    """The text that is spoken in an `Audio`."""


@dataclass(frozen=True)
class AugmentationSeed(Feature):
    """Seed of the masks that a model draws for an example in training; `[B]` int64 in a batch.

    It is stored as 0, no augmentation; `preprocess_example` draws it for each epoch.

    Attributes:
      of: name of the input.
    """

    arrow_type: ClassVar[str] = "list<int64>"
    shape: ClassVar[tuple[int | None, ...]] = ()

    of: str = "inputs"

    def encode(self, value: Any) -> Sequence[int]:
        """Returns the seed."""
        return [int(value)]

    def decode(self, ids: Iterable[int]) -> int:
        """Returns the seed."""
        return next(int(i) for i in ids)
