"""Synthetic speech of espeak-ng: digits and sentences in many voices, with noise.

espeak-ng (https://github.com/espeak-ng/espeak-ng, GPL 3) is a Debian package.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.features.audio import int16_of, open_sound, resample
from t2t_torch.mode import Split
from t2t_torch.problem_types.speech import Speech2TextProblem
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import RawVocabularyProblem

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-029")
_SPEAKERS: Mapping[Split, Sequence[str]] = {
    Split.TRAIN: (
        *("m1", "m2", "m3", "m5", "m7", "m8", "f1", "f2", "f4", "klatt", "klatt3", "klatt5"),
        *("adam", "Alex", "Alicia", "Andrea", "anika", "Annie", "antonio", "aunty", "belinda"),
        *("benjamin", "caleb", "david", "Diogo", "ed", "edward", "grandma", "grandpa", "Henrique"),
        *("Hugo", "iven", "john", "Lee", "linda", "Marco", "Mario", "max", "Michael", "michel"),
        *("norbert", "pablo", "paul", "pedro", "quincy", "rob", "sandro", "shelby", "victor"),
    ),
    Split.EVAL: ("m4", "f3", "klatt2"),
    Split.TEST: ("m6", "f5", "steph"),
}
"""Variants of espeak-ng's voices; no speaker is in two splits."""


class _EspeakProblem(Speech2TextProblem):
    """Base class of problems whose texts espeak-ng speaks.  Speakers of EVAL and TEST are unseen.

    Attributes:
      speakers: variants of voices by split.
      snrs: signal-to-noise ratios in dB, one drawn for each utterance; None: no noise.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 4, Split.EVAL: 1, Split.TEST: 1}
    speakers: ClassVar[Mapping[Split, Sequence[str]]] = _SPEAKERS
    snrs: ClassVar[tuple[float | None, ...]] = (None, 20.0, 10.0)
    setting_names = (*Speech2TextProblem.setting_names, "snrs")

    def texts_of(self, tmp_dir: Path, split: Split) -> Iterator[str]:
        """Yields the texts of a split."""
        raise NotImplementedError

    def prepare(self, tmp_dir: Path) -> None:
        """Checks that espeak-ng is installed."""
        if shutil.which("espeak-ng") is None:
            raise DataError(
                f"{self.name} is spoken by espeak-ng, which is not installed. Install it:  "
                "apt-get install espeak-ng"
            )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields spoken texts; voice, speed, pitch and noise are drawn for each."""
        draw = random.Random(f"{self.name} {split.value}")
        for number, text in enumerate(self.texts_of(tmp_dir, split)):
            voice = f"{draw.choice(_ACCENTS)}+{draw.choice(self.speakers[split])}"
            spoken = _speak(
                text, voice, draw.randint(130, 210), draw.randint(35, 65), self.sample_rate
            )
            if (snr := draw.choice(self.snrs)) is not None:
                spoken = _with_noise(spoken, snr, [self.shuffle_seed, len(split.value), number])
            yield {"inputs": int16_of(spoken), "targets": text}


def _speak(
    text: str, voice: str, words_per_minute: int, pitch: int, sample_rate: int
) -> npt.NDArray[np.float64]:
    """Returns the waveform of a text, spoken by espeak-ng.

    Args:
      text: the text.
      voice: name of a voice, as in "en-us+f3".
      words_per_minute: speed.
      pitch: 0 to 99.
      sample_rate: in Hz.

    Raises:
      DataError: espeak-ng fails.
    """
    command = ["espeak-ng", "-v", voice, "-s", str(words_per_minute), "-p", str(pitch), "--stdout"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        raise DataError(
            f"espeak-ng could not speak {text!r} with the voice {voice}: "
            f"{done.stderr.decode(errors='replace').strip()}. List the voices:  espeak-ng --voices"
        )
    sound = open_sound(done.stdout)
    samples = np.concatenate([block[:, 0] for block in sound.blocks])
    return resample(samples, sound.rate, sample_rate)


def _with_noise(
    samples: npt.NDArray[np.float64], snr: float, seed: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Returns a waveform with pink noise.

    Args:
      samples: [n].
      snr: ratio of the power of signal and noise, in dB.
      seed: seed of the noise.
    """
    white = np.fft.rfft(np.random.default_rng(list(seed)).standard_normal(len(samples)))
    pink = np.fft.irfft(white / np.sqrt(np.arange(1, len(white) + 1)), len(samples))
    power = np.mean(samples**2) / 10 ** (snr / 10)
    noisy: npt.NDArray[np.float64] = samples + pink * np.sqrt(
        power / max(float(np.mean(pink**2)), 1e-12)
    )
    return noisy


@register_problem("speech_espeak_digits")
class SpeechEspeakDigits(RawVocabularyProblem, _EspeakProblem):
    """One to five digits, as words; noise at 20 and 10 dB in two thirds of the utterances.

    The vocabulary is the ten words.

    Attributes:
      counts: number of utterances by split.
    """

    counts: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 3000, Split.EVAL: 300, Split.TEST: 300}
    suggested_flags = (
        "--model=transformer_ctc --hparams_set=transformer_ctc_tiny --train_steps=3500"
    )

    def vocabulary_words(self, tmp_dir: Path) -> Sequence[str]:
        """Returns the words."""
        return _DIGITS

    def texts_of(self, tmp_dir: Path, split: Split) -> Iterator[str]:
        """Yields the digits of each utterance."""
        draw = random.Random(f"{self.name} texts {split.value}")
        for _ in range(self.counts[split]):
            yield " ".join(draw.choices(_DIGITS, k=draw.randint(1, 5)))


@register_problem("speech_espeak_sentences")
class SpeechEspeakSentences(_EspeakProblem):
    """English captions of Multi30k in lower case, without punctuation.

    Attributes:
      text_problem: problem whose English "inputs" are spoken; its files are read or fetched.
      counts: greatest number of sentences by split.
    """

    counts: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 8000, Split.EVAL: 300, Split.TEST: 300}
    text_problem: ClassVar[str] = "translate_multi30k_ende"
    suggested_flags = (
        "--model=transformer_ctc --hparams_set=transformer_ctc_joint_tiny --train_steps=20000"
    )

    def prepare(self, tmp_dir: Path) -> None:
        """Fetches the texts."""
        super().prepare(tmp_dir)
        registry.problem(self.text_problem).prepare(tmp_dir)

    def texts_of(self, tmp_dir: Path, split: Split) -> Iterator[str]:
        """Yields the sentences."""
        count = 0
        for sample in registry.problem(self.text_problem).generate_samples(tmp_dir, split):
            letters = "".join(c if c.isalpha() or c in "' " else " " for c in sample["inputs"])
            if text := " ".join(letters.lower().split()):
                yield text
                count += 1
            if count == self.counts[split]:
                return
