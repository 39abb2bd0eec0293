"""Sounds: files, samples, resampling, and bad input of each kind."""

from __future__ import annotations

import base64
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2t_torch.errors import DataError
from t2t_torch.features import Features
from t2t_torch.features.audio import (
    LOUDEST,
    NO_SAMPLE,
    Audio,
    SoundLimits,
    int16_of,
    mel_matrix,
    open_sound,
    resample,
    spectrogram,
    wav_of,
)
from t2t_torch.pipeline.reader import restore
from t2t_torch.runtime import feeds

GOLDEN = Path(__file__).parents[1] / "golden" / "speech"
TONE = np.sin(np.arange(1600) * 0.2) * 0.5


def read_audio(source: Path | bytes) -> tuple[Any, int]:
    sound = open_sound(source)
    return np.concatenate(list(sound.blocks)), sound.rate


def wav(kind: int, bits: int, data: bytes, channels: int = 1, rate: int = 16000) -> bytes:
    width = bits // 8 * channels
    numbers = (
        (kind, 2),
        (channels, 2),
        (rate, 4),
        (rate * width % 2**32, 4),
        (width, 2),
        (bits, 2),
    )
    header = b"".join(number.to_bytes(size, "little") for number, size in numbers)
    head = b"WAVEfmt " + (16).to_bytes(4, "little") + header
    return b"RIFF" + bytes(4) + head + b"data" + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize(
    ("kind", "bits", "data"),
    [
        (1, 8, (TONE * 127 + 128).round().astype(np.uint8).tobytes()),
        (1, 16, (TONE * 32767).round().astype("<i2").tobytes()),
        (
            1,
            24,
            (TONE * (2**23 - 1))
            .round()
            .astype("<i4")
            .reshape(-1, 1)
            .view(np.uint8)[:, :3]
            .tobytes(),
        ),
        (1, 32, (TONE * (2**31 - 1)).round().astype("<i4").tobytes()),
        (3, 32, TONE.astype("<f4").tobytes()),
        (3, 64, TONE.astype("<f8").tobytes()),
    ],
)
def test_every_kind_of_wav_is_read_without_a_library(kind: int, bits: int, data: bytes) -> None:
    samples, rate = read_audio(wav(kind, bits, data))
    assert rate == 16000
    np.testing.assert_allclose(samples[:, 0], TONE, atol=0.005 if bits == 8 else 2e-5)


def test_samples_are_scaled_as_by_tensor2tensor() -> None:
    with np.load(GOLDEN / "audio.npz") as golden:
        expected = golden["audio_encoder/int16"]
    samples, _ = read_audio(GOLDEN / "clip_int16.wav")
    np.testing.assert_allclose(samples[:, 0], expected, rtol=1e-6)
    stored = Audio().decode(Audio().encode(GOLDEN / "clip_int16.wav"))
    np.testing.assert_allclose(stored / LOUDEST, expected, rtol=1e-6)


def test_other_formats_are_read_by_soundfile(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for suffix in ("flac", "ogg"):
        soundfile.write(tmp_path / f"a.{suffix}", TONE, 16000)
        stored = Audio().decode(Audio().encode(tmp_path / f"a.{suffix}"))
        assert abs(stored / LOUDEST - TONE)[:1500].max() < (1e-4 if suffix == "flac" else 0.1)


def test_values_of_every_form_are_stored_alike() -> None:
    feature, samples = Audio(), int16_of(TONE)
    content = wav_of(samples, 16000)
    text = base64.b64encode(content).decode()
    forms: list[Any] = [samples, samples.tolist(), samples / LOUDEST, content, text]
    forms += [f"data:audio/wav;base64,{text}", (samples / LOUDEST).tolist()]
    for form in forms:
        np.testing.assert_array_equal(feature.decode(feature.encode(form)), samples)


def test_the_last_frame_is_filled_up() -> None:
    stored = Audio().encode([1] * 161)
    assert stored.shape == (320,)
    assert (stored[161:] == NO_SAMPLE).all()
    assert Audio().decode(Audio().encode([-32768, -1])).tolist() == [-32767, -1]


def test_a_restored_value_encodes_to_the_stored_numbers() -> None:
    stored = Audio().encode(int16_of(TONE))
    from t2t_torch.features import Features

    again = restore(Audio(), "inputs", Features({}, {}), {"inputs": stored})
    np.testing.assert_array_equal(Audio().encode(again), stored)


@pytest.mark.parametrize(("rate", "to"), [(10, 9), (44100, 16000), (16000, 22050), (9, 10)])
def test_resampling_keeps_a_tone(rate: int, to: int) -> None:
    result = resample(np.sin(np.arange(8000) * 0.3), rate, to)
    expected = np.sin(np.arange(len(result)) * 0.3 * rate / to)
    assert len(result) == -(-8000 * to // rate)
    np.testing.assert_allclose(result[60:-60], expected[60:-60], atol=2e-3)


def test_resampling_removes_what_the_lower_rate_cannot_hold() -> None:
    high = np.sin(np.arange(8000) * 2.8)  # 7.1 kHz of 16
    assert abs(resample(high, 16000, 8000)[50:-50]).max() < 0.01


def test_other_rates_and_channels_are_refused_or_converted(tmp_path: Path) -> None:
    stereo = np.stack([TONE, -TONE / 2], 1)
    content = wav(1, 16, (stereo * 32767).astype("<i2").tobytes(), channels=2, rate=8000)
    with pytest.raises(DataError, match=r"8000 Hz and 2 channels; expected 16000 Hz and 1 .*sox"):
        Audio().encode(content)
    assert len(Audio(resample=True).samples_of(content)) == 3200


def test_a_wav_file_is_whole_unless_its_size_was_unknown() -> None:
    content = wav(1, 16, b"\1\0" * 1000)
    place = content.index(b"data") + 4
    with pytest.raises(DataError, match=r"cut off: its header says 2,000 bytes .* and 1,000 are"):
        Audio().encode(content[:-1000])
    for size in (0, 0x7FFFFFFF, 0xFFFFFFFF):  # as pipes write them
        streamed = content[:place] + size.to_bytes(4, "little") + content[place + 4 :]
        assert len(Audio().samples_of(streamed)) == 1000


def test_wav_files_of_telephones_are_read_by_soundfile() -> None:
    soundfile = pytest.importorskip("soundfile")
    for kind in ("ALAW", "ULAW"):
        file = io.BytesIO()
        soundfile.write(file, 0.5 * TONE, 8000, format="WAV", subtype=kind)
        found = Audio(8000).samples_of(file.getvalue()) / 32767
        np.testing.assert_allclose(found, 0.5 * TONE, atol=0.02)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Path("missing.wav"), "No such file"),
        (b"RIFF0000WAVE", "damaged wav"),
        (wav(1, 12, b"00"), "12 bits"),
        (wav(1, 16, b""), "without samples"),
        (b"nothing", "no sound file that can be read"),
        ("/etc/passwd", "no sound"),
        ("", "no sound"),
        ([], "no sound|without samples"),
        ([0.5], "without samples"),
        ([1, 70000], "no 16-bit samples"),
        ([1200.0, -3000.0], "samples up to 3000: expected floats"),
        ([0.1, float("nan")], "no sound"),
        ([[1, 2], [3, 4]], "no sound"),
        ({"a": 1}, "no sound"),
        (None, "no sound"),
        (wav(3, 32, np.array([np.inf, 1], "<f4").tobytes()), "not finite"),
    ],
)
def test_what_is_no_sound_is_refused(value: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        Audio().encode(value)


def test_the_mel_matrix_is_that_of_tensorflow() -> None:
    with np.load(GOLDEN / "audio.npz") as golden:
        expected = golden["mel_matrix/80_257_16000_20_8000"]
    np.testing.assert_allclose(mel_matrix(80, 257, 16000, 20.0, 8000.0), expected, atol=2e-5)


def test_a_picture_has_a_tone_in_one_row() -> None:
    picture = spectrogram(int16_of(np.sin(np.arange(16000) * 2 * np.pi / 16)), 16000)
    assert picture.shape == (40, 100)
    assert picture[:, 50].argmax() == picture[:, 10].argmax()
    assert (spectrogram(np.zeros(3, np.int16), 16000) == 0).all()


@pytest.mark.parametrize("rate", [-5, 0, 50, 10**7])
def test_an_impossible_sampling_rate_is_refused(rate: int) -> None:
    with pytest.raises(DataError, match=r"sample_rate=.*Hz"):
        Audio(rate)


def flac(frames: int, rate: int = 16000, total: int | None = None) -> bytes:
    """Returns silence as a FLAC whose header states a rate and a number of samples."""
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.zeros(frames, np.int16), 16000, format="FLAC")
    content = bytearray(file.getvalue())
    stated = int.from_bytes(content[18:26], "big")
    total = frames if total is None else total
    stated = rate << 44 | (stated >> 36 & 0xFF) << 36 | total
    return bytes(content[:18]) + stated.to_bytes(8, "big") + bytes(content[26:])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (wav(1, 16, bytes(2000), rate=1), "a rate of 1 Hz, .*expected 1,000 to 384,000 Hz"),
        (wav(1, 16, bytes(2000), rate=2**31 - 1), "a rate of 2,147,483,647 Hz"),
        (wav(1, 16, bytes(65000), channels=65), "channels: 65; expected .* 1 to 64 channels"),
        (lambda: flac(8000, total=100_000_001), "100,000,001 samples .*; at most 100,000,000 are"),
        (lambda: flac(8000, rate=1), "a rate of 1 Hz"),
        (lambda: flac(8000, total=200_000_000), r"200,000,000 samples .*6250 s\. Cut"),
        (lambda: flac(8000, total=8001), "cut off .*header says 8,001 samples, and 8,000 can"),
    ],
)
def test_rates_channels_and_samples_are_bounded(content: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        Audio(resample=True).encode(content() if callable(content) else content)


def test_the_samples_of_several_sounds_are_counted_before_they_are_decoded() -> None:
    counted: list[int] = []
    content = flac(8000, total=8001)
    with pytest.raises(DataError, match="can be read"):
        Audio(resample=True).samples_of(content, SoundLimits(spend=counted.append))
    assert counted[0] == 8001
    Audio(resample=True).samples_of(
        wav(1, 16, bytes(2000), rate=1000), SoundLimits(spend=counted.append)
    )
    assert max(counted) == 16_000, "the samples after resampling, which are more"
    limits = SoundLimits(seconds=0.1)
    with pytest.raises(DataError, match=r"16,000 samples .* at most 1,600 are read"):
        Audio().samples_of(wav(1, 16, bytes(32000)), limits)
    with pytest.raises(DataError, match="at most 1,000"):  # 2,000 at the rate of the feature
        Audio(resample=True).samples_of(
            wav(1, 16, bytes(4000), rate=8000), SoundLimits(frames=2000)
        )


def test_a_stream_without_a_number_of_samples_is_read_to_its_end() -> None:
    assert len(Audio().samples_of(flac(8000, total=0))) == 8000
    with pytest.raises(DataError, match="at most 7,999"):
        Audio().samples_of(flac(8000, total=0), SoundLimits(frames=7999))


def test_half_an_mp3_is_refused_and_one_without_tags_is_read() -> None:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(80_000) * 0.2) * 0.5, 16000, format="MP3")
    content = file.getvalue()
    assert content[0] == 0xFF
    assert len(Audio().samples_of(content)) == 80_000
    with pytest.raises(DataError, match="cut off or damaged"):
        Audio().samples_of(content[: len(content) // 2])


def test_only_formats_of_sounds_are_read(capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing but errors is said of damaged ones."""
    soundfile = pytest.importorskip("soundfile")
    for kind in ("FLAC", "OGG", "MP3", "AIFF", "AU", "RF64", "CAF", "W64", "NIST"):
        file = io.BytesIO()
        soundfile.write(file, TONE, 16000, format=kind)
        assert len(Audio().samples_of(file.getvalue())) >= 1600
        damaged = bytearray(file.getvalue())
        damaged[40:80] = b"\xff" * 40
        try:
            Audio(resample=True).samples_of(bytes(damaged))
        except DataError:
            continue
    for kind in ("MAT4", "PAF", "SD2", "VOC"):
        file = io.BytesIO()
        try:
            soundfile.write(file, TONE, 16000, format=kind)
        except (soundfile.SoundFileError, ValueError):
            continue
        with pytest.raises(DataError, match=r"no sound file that can be read .unknown format"):
            Audio().samples_of(file.getvalue())
    assert "Traceback" not in capfd.readouterr().err


def test_resampling_takes_little_memory() -> None:
    tracemalloc.start()
    resample(np.zeros(960_000, np.float32), 48000, 16000)
    assert tracemalloc.get_traced_memory()[1] < 30e6
    tracemalloc.stop()


def test_an_artifact_converts_sounds_of_other_rates() -> None:
    spec = Audio(16000).input_spec("inputs", Features({"inputs": Audio(16000)}, {}))
    samples = np.sin(np.arange(4000) / 9)
    content = wav_of(int16_of(samples), 8000)
    value, _ = feeds._value(spec, base64.b64encode(content).decode())
    np.testing.assert_array_equal(value, Audio(16000, resample=True).samples_of(content))
    assert len(value) == 8000
