"""Speech recognition, and classification of sounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.features import Audio, AugmentationSeed, Feature, Features, Transcript
from t2t_torch.features.audio import NO_SAMPLE, resample
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.labelled import LabelTargets
from t2t_torch.text_problem import TextProblem, VocabType

_SEED = "inputs_seed"


class SoundProblem(Problem):
    """Base class of problems with a sound as "inputs", a `pathlib.Path`, bytes or samples.

    Lengths, as in `batch_size` and `max_length`, are frames of 10 ms.

    Attributes:
      sample_rate: sampling rate of the stored waveforms, in Hz.
      resample: True to convert files of other sampling rates, and to average channels.
      speeds: speed perturbation: factors on the speed of a training example, one drawn for each
        epoch; Ko et al. 2015, "Audio Augmentation for Speech Recognition".
    """

    batch_size_means_tokens = True
    input_space_id = 13  # AUDIO_SPECTRAL
    sample_rate: ClassVar[int] = 16000
    resample: ClassVar[bool] = False
    speeds: ClassVar[tuple[float, ...]] = (0.9, 1.0, 1.1)
    most_growth = 1.25

    def sound_features(
        self, target: Feature, notes: Mapping[str, Feature] = MappingProxyType({})
    ) -> Features:
        """Returns the features of the waveform, a target, and the seed of augmentation."""
        inputs = {"inputs": Audio(self.sample_rate, self.resample)}
        return Features(inputs, {"targets": target}, notes={_SEED: AugmentationSeed(), **notes})

    def examples_of(self, sample: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Returns the sample with a seed of 0."""
        return [{**example, _SEED: 0} for example in super().examples_of(sample)]

    def preprocess_example(
        self, example: dict[str, npt.NDArray[Any]], mode: Split, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Changes the speed of a training example, and draws the seed of its masks."""
        if mode is not Split.TRAIN:
            return example
        changed: dict[str, Any] = dict(example)
        seed, draw = rng.integers(1, 2**62), rng.random()
        changed[_SEED] = np.int64(seed)
        speed = self.speeds[int(draw * len(self.speeds))] if self.speeds else 1.0
        if speed != 1.0:
            frames = example["inputs"]
            samples = frames.reshape(-1)
            samples = samples[samples != NO_SAMPLE]
            slower = resample(samples, round(100 * speed), 100)
            feature = Audio(self.sample_rate)
            whole = feature.framed(np.rint(slower).clip(1 + NO_SAMPLE, -1 - NO_SAMPLE))
            changed["inputs"] = whole.reshape(-1, frames.shape[1])
        return changed


class Speech2TextProblem(SoundProblem, TextProblem):
    """Transcription of speech.

    `generate_samples` yields {"inputs": `pathlib.Path` of a sound file or samples, "targets": str}.
    """

    text_fields = ("targets",)
    vocab_type = VocabType.CHARACTER
    metrics = ("word_error_rate", "character_error_rate")
    suggested_flags = "--model=transformer_ctc --hparams_set=transformer_ctc_tiny"
    target_space_id = 2  # EN_CHR
    setting_names = (*TextProblem.setting_names, "sample_rate")
    optional_setting_names = (*TextProblem.optional_setting_names, "resample")

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the waveform, its transcript, and the seed of augmentation."""
        encoder = self.encoder(directory)
        return self.sound_features(Transcript(encoder, add_eos=encoder.add_eos), self.weights())


class Audio2ClassProblem(SoundProblem, LabelTargets):
    """Classification of sounds, such as spoken commands.

    `generate_samples` yields {"inputs": `pathlib.Path` or bytes of a sound file, or samples,
    "targets": str}.
    """

    suggested_flags = "--model=resnet --hparams_set=resnet_sound"
    portfolio = ("again",)
    setting_names = ("sample_rate", "class_labels")
    optional_setting_names = ("resample",)

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the waveform, its class, and the seed of augmentation."""
        return self.sound_features(self.target(directory))
