"""Transcription of speech with a trained model: by its decoder, or by CTC."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from t2t_torch.decode import constraints, outputs, policies, predictor
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import Feature, InputSpec
from t2t_torch.modalities.speech import BLANK, CtcHypothesis, collapsed, prefix_beam_search
from t2t_torch.problem import Problem
from t2t_torch.runtime.prediction import Prediction

_READ_BY_CTC = ("beam_size", "alpha", "length_offset", "length_scale", "return_beams")
"""Decode hyperparameters of the search over the outputs of CTC."""

_FRAMES_PER_ID = 4  # fewest frames of 10 ms of an id


class SpeechPredictor(predictor.Predictor):
    """Transcribes sounds: paths, the contents of wav files, or samples; see `Audio.encode`.

    With CTC, `beam_size=1` is greedy: the likeliest path, with its log-probability.  A wider beam
    sums the paths of a text; `alpha` and the length penalty rank texts of different lengths.
    """

    why_unaligned: ClassVar[str] = "it reads sounds, which have no words"

    def _input_of(self, problem: Problem) -> Feature:
        inputs = self.features.inputs
        specs = [kind.input_spec(name, self.features) for name, kind in inputs.items()]
        if [spec.kind for spec in specs] != ["audio"]:
            kinds = ", ".join(type(kind).__name__ for kind in inputs.values())
            raise DecodeError(
                f"problem {problem.full_name!r} has the inputs {kinds}: expected one Audio. Call "
                "the model itself (Predictor.model) for its logits."
            )
        return next(iter(inputs.values()))

    @property
    def spec(self) -> InputSpec:
        """The specification of the input."""
        spec: InputSpec = self._input.input_spec(self.field, self.features)
        return spec

    def encode(self, texts: Sequence[Any], hparams: DecodeHParams | None = None) -> list[Any]:
        """Returns the frames of sounds, [frames, samples] int16 each.

        Raises:
          DataError: a sound cannot be read, or has another sampling rate.
        """
        return [self.cut(self._input.encode(self._sound_of(one)), hparams) for one in texts]

    def _sound_of(self, given: Any) -> Any:
        """Returns the sound of an input, which may be a mapping.

        Raises:
          DataError: the mapping has no sound, or constraints on the output.
        """
        if not isinstance(given, Mapping):
            return given
        if self.field not in given:
            raise DataError(f"{reprlib.repr(dict(given))} has no {self.field!r}, the sound.")
        if constraints.asks(given, self.field):
            raise DataError("a transcription has no prefix and no constraints: remove them.")
        return given[self.field]

    def value_of(self, given: Any, folder: Path) -> Any:
        """Returns the path of a sound file, absolute or relative to the folder of the list.

        Raises:
          DataError: it is no path.
        """
        path = self._sound_of(given)
        if not isinstance(path, str | Path):
            raise DataError(f"{reprlib.repr(path)} is no path of a sound file.")
        path = outputs.from_line(self._input, str(path), folder)
        return {**given, self.field: path} if isinstance(given, Mapping) else path

    def _check_own(self, hparams: DecodeHParams) -> None:
        """Raises HParamsError if CTC, or another kind of search, does not read a setting."""
        super()._check_own(hparams)
        if not self.model.searches:
            hparams.check_read(_READ_BY_CTC, "CTC, whose search is over paths,")

    def cut(self, ids: Any, hparams: DecodeHParams | None = None) -> Any:
        """Returns the frames of a sound, the first `max_input_size` if that is set."""
        frames = np.asarray(ids).reshape(-1, self._input.samples_per_frame)
        most = (hparams or self.hparams).max_input_size
        return frames[:most] if most > 0 else frames

    def _padded(self, inputs: Sequence[Any]) -> Tensor:
        rows: list[Any] = [np.asarray(row, np.int16).reshape(-1) for row in inputs]
        return predictor.padded_rows(self._input, rows)

    def _size(self, row: Sequence[int]) -> int:
        return len(row) // _FRAMES_PER_ID

    @torch.no_grad()
    def _predict_batch(
        self, inputs: list[Sequence[int]], hparams: DecodeHParams
    ) -> list[Prediction]:
        if self.model.searches:
            return super()._predict_batch(inputs, hparams)
        device = next(self.model.parameters()).device
        with self.autocast(hparams, device):
            logits = self.model.logits({self.field: self._padded(inputs).to(device)})
        log_probs = logits[self.target].float().log_softmax(-1).cpu()
        if hparams.beam_size == 1:
            best, frames = log_probs.max(-1)
            rows = collapsed(frames)
            scores = best.sum(-1).tolist()
            results = [
                [CtcHypothesis(tuple(i for i in row if i != BLANK), score, score)]
                for row, score in zip(rows.tolist(), scores, strict=True)
            ]
        else:
            policy = policies.policy_of(hparams, go_on=False)
            results = [
                prefix_beam_search(
                    row.numpy(),
                    hparams.beam_size,
                    lambda length: float(policy.penalty(torch.tensor(float(length)))),
                )
                for row in log_probs
            ]
        count = hparams.beam_size if hparams.return_beams else 1
        return [
            self._prediction(
                [list(one.ids) for one in best[:count]], [p.score for p in best[:count]]
            )
            for best in results
        ]
