"""Features of speech: waveforms, transcripts, and the seed of an example's augmentation."""

from __future__ import annotations

import base64
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec, Row
from t2t_torch.features.sound import (
    LIMITS,
    LOUDEST,
    RATES,
    Samples,
    SoundLimits,
    int16_of,
    open_sound,
    wav_of,
)
from t2t_torch.features.text import Text
from t2t_torch.files import file_content, path_of_line

if TYPE_CHECKING:
    from t2t_torch.export.text_graph import InputGraph

NO_SAMPLE = -32768
"""Padding of waveforms; no sample has this value."""

FRAMES_PER_SECOND = 100

# Mel scale.


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


# Features.


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

    is_discrete: ClassVar[bool] = False
    is_sound: ClassVar[bool] = True

    sample_rate: int = 16000
    resample: bool = False

    def __post_init__(self) -> None:
        if not RATES[0] <= self.sample_rate <= RATES[1]:
            raise DataError(
                f"sample_rate={self.sample_rate}: expected {RATES[0]:,} to {RATES[1]:,} Hz."
            )

    @property
    def arrow_type(self) -> str:
        """A list of 16-bit integers."""
        return "list<int16>"

    @property
    def samples_per_frame(self) -> int:
        """Number of samples of 10 ms."""
        return self.sample_rate // FRAMES_PER_SECOND

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Frames, samples."""
        return (None, self.samples_per_frame)

    @property
    def padding(self) -> int:
        """`NO_SAMPLE`."""
        return NO_SAMPLE

    def encode(self, value: Any) -> Any:
        """Returns the samples of whole frames, `NO_SAMPLE` after the end.

        Args:
          value: path of a sound file (`pathlib.Path`), its content (bytes, or as a base64 text),
            or samples as a list or an array: integers of 16 bits, or floats from -1 to 1.

        Raises:
          DataError: there is no such sound, or it has another sampling rate or several channels.
        """
        return self.framed(self.samples_of(value))

    def from_line(self, text: str, folder: Path) -> Path:
        """Returns the path of a sound file; see `path_of_line`."""
        return path_of_line(text, folder, "sound")

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

    def restore(self, name: str, features: Features, row: Row) -> str:
        """Returns a wav file as a base64 text."""
        content = wav_of(self.decode(row[name].reshape(-1)), self.sample_rate)
        return base64.b64encode(content).decode("ascii")

    def unusual_values(self) -> dict[str, Any]:
        """Returns short, silent and loud sounds."""
        return {
            "a very short sound": [0.5, -0.5],
            "silence": [0.0] * (self.samples_per_frame + 1),
            "a loud sound": [1.0, -1.0] * self.samples_per_frame,
        }

    def encode_graph(self, name: str, inputs: InputGraph) -> str:
        """Returns the frames of the samples.  [B, frames, samples] int16."""
        frames: str = inputs.frames(name, self.samples_per_frame, NO_SAMPLE)
        return frames

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the sampling rate, as `size`."""
        return InputSpec(name, "audio", "int16", size=self.sample_rate, shape=(-1,))

    def example(self, *, as_list: bool) -> Any:
        """Returns the beginning of a wav file in base64."""
        return "UklGR..."

    def describe(self, name: str, features: Features, row: Row, limit: int) -> str:
        """Returns the duration; reports show a spectrogram."""
        return self.describe_value(self.decode(row[name].reshape(-1)))

    def picture(self, stored: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Returns a spectrogram."""
        return spectrogram(self.decode(stored), self.sample_rate)[..., None]

    def line(self, value: Any) -> str:
        """Returns the duration."""
        return self.describe_value(value)

    def describe_value(self, value: Any) -> str:
        """Returns the duration."""
        return f"sound of {len(value) / self.sample_rate:.2f} s"


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

    @property
    def text_scores(self) -> tuple[str, ...]:
        """Word and character error rates."""
        return "word_error_rate", "character_error_rate"


@dataclass(frozen=True)
class AugmentationSeed(Feature):
    """Seed of the masks that a model draws for an example in training; `[B]` int64 in a batch.

    It is stored as 0, no augmentation; `preprocess_example` draws it for each epoch.

    Attributes:
      of: name of the input.
    """

    of: str = "inputs"

    @property
    def arrow_type(self) -> str:
        """A list of one 64-bit integer."""
        return "list<int64>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """A single number."""
        return ()

    def encode(self, value: Any) -> Sequence[int]:
        """Returns the seed."""
        return [int(value)]

    def decode(self, ids: Iterable[int]) -> int:
        """Returns the seed."""
        return next(int(i) for i in ids)
