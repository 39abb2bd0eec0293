"""A trained model that writes: a list of texts in, a list of texts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from t2t_torch.artifact.prediction import Hypothesis, Prediction
from t2t_torch.compute.precision import autocast
from t2t_torch.decode.beam import NO_SCORE
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.sampling import Sampler, numbers_of, sample
from t2t_torch.decode.search import beam_search
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DecodeError
from t2t_torch.features import Feature, Features, Text
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.train.run_directory import TaskRecord


class RunInfo(NamedTuple):
    """Where a predictor's weights came from."""

    task: TaskRecord
    step: int


class Predictor:
    """A model that answers in words.  `loading.load` makes one from a run directory.

    Args:
      model: one that generates, on the device where it shall compute.
      problem: what it has learnt.
      features: the problem's, with the vocabularies that the model was trained with.
      hparams: how to decode, where a call does not say.
      run: where the weights came from; None if from nowhere.

    Attributes:
      before_batch: called before each batch is decoded; what it raises ends the decoding.

    Raises:
      DecodeError: the model's targets are no text, or its inputs more than one.
      HParamsError: the beam is too wide for the vocabulary.
    """

    def __init__(
        self,
        model: T2TModel | Ensemble,
        problem: Problem,
        features: Features,
        hparams: DecodeHParams | None = None,
        run: RunInfo | None = None,
    ) -> None:
        self.model = model.eval()
        self.problem = problem
        self.features = features
        self.hparams = hparams or DecodeHParams()
        self.run = run
        self.before_batch: Callable[[], None] = lambda: None
        self._target = _text_feature(problem, features.targets)
        self._input = _text_feature(problem, features.inputs) if features.has_inputs else None
        self.hparams.check_beam(self.vocab_size)

    @property
    def vocab_size(self) -> int:
        """The number of ids that an output is made of."""
        return self._target.vocab_size

    @property
    def field(self) -> str:
        """The name of the text that is read; of a language model its target, which it goes on."""
        return next(
            iter(self.features.inputs if self.features.has_inputs else self.features.targets)
        )

    def __call__(self, inputs: Sequence[str]) -> list[str]:
        """Returns the best output of each input, in their order.

        For a language model an input is how the text begins, and the output how it goes on.
        """
        return [prediction.text for prediction in self.predict(inputs)]

    def predict(
        self, inputs: Sequence[str], hparams: DecodeHParams | None = None
    ) -> list[Prediction]:
        """Returns what was found for each input, in their order.

        Args:
          inputs: texts.
          hparams: how to decode; by default as the predictor was made.

        Raises:
          DataError: a text has no ids in the vocabulary.
          DecodeError: `inputs` is a string, not a list of them.
          HParamsError: the beam is too wide for the vocabulary.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        hparams = hparams or self.hparams
        found = dict(self.predict_ids(self.encode(inputs, hparams), hparams))
        return [found[index] for index in range(len(inputs))]

    def encode(self, texts: Sequence[str], hparams: DecodeHParams | None = None) -> list[list[int]]:
        """Returns the ids of inputs: `EOS` at the end, none for a language model's beginnings."""
        feature = self._input or self._target
        if cut := self.problem.cutters.get(feature.source or self.field):
            texts = [cut(text) for text in texts]
        encoded = feature.encode_batch(texts)
        if feature.add_eos and self._input is None:
            encoded = [ids[:-1] for ids in encoded]
        return [self.cut(ids, hparams) for ids in encoded]

    def cut(self, ids: list[int], hparams: DecodeHParams | None = None) -> list[int]:
        """Returns the ids of an input, at most `max_input_size` of them, the end symbol kept."""
        most = (hparams or self.hparams).max_input_size
        if most <= 0 or len(ids) <= most:
            return ids
        ends = self._input is not None and self._input.add_eos
        return [*ids[: most - 1], EOS] if ends else ids[:most]

    def predict_ids(
        self, inputs: Sequence[Sequence[int]], hparams: DecodeHParams | None = None
    ) -> Iterator[tuple[int, Prediction]]:
        """Yields (index of the input, what was found), a batch at a time, the longest inputs first.

        So too little memory shows at once, and the estimate of the time left errs on the safe side.

        Args:
          inputs: ids, as `encode` makes them.
          hparams: how to decode; by default as the predictor was made.
        """
        hparams = hparams or self.hparams
        hparams.check_beam(self.vocab_size)
        for indices in _batches([len(ids) for ids in inputs], hparams):
            self.before_batch()
            predictions = self._predict_batch([inputs[index] for index in indices], hparams)
            yield from zip(indices, predictions, strict=True)

    @torch.inference_mode()
    def _predict_batch(
        self, inputs: list[Sequence[int]], hparams: DecodeHParams
    ) -> list[Prediction]:
        device = next(self.model.parameters()).device
        ids = _padded(inputs).to(device)  # [B, S]
        lengths = torch.tensor([len(row) for row in inputs], device=device)
        has_inputs = self.features.has_inputs
        limits = torch.full_like(lengths, hparams.extra_length)
        if not (hparams.force_decode_length and has_inputs):
            limits += lengths  # a prompt counts: it is part of what is made
        name = next(iter(self.features.inputs if has_inputs else self.features.targets))
        if hparams.draws:
            return self._draw_batch(inputs, {name: ids}, limits, hparams)
        with self.autocast(hparams, device):
            found = beam_search(
                self._step,
                self.model.encode({name: ids}),
                max_lengths=limits,
                beam_size=hparams.beam_size,
                alpha=0.0 if hparams.beam_size == 1 else hparams.alpha,
                stop_early=not hparams.return_beams,
                candidates_per_beam=1 if hparams.beam_size == 1 else 2,
                prefix=None if has_inputs else ids,
            )
        places = hparams.beam_size if hparams.return_beams else 1
        return [
            self._prediction(row, scores)
            for row, scores in zip(
                found.ids[:, :places].tolist(), found.scores[:, :places].tolist(), strict=True
            )
        ]

    def _draw_batch(
        self,
        inputs: list[Sequence[int]],
        batch: dict[str, Tensor],
        limits: Tensor,
        hparams: DecodeHParams,
    ) -> list[Prediction]:
        """Draws outputs; each draw is a row of its own, as it ends when it ends."""
        count, (ids,) = hparams.num_decodes, batch.values()
        numbers = numbers_of(hparams.random_seed, inputs, count, int(limits.max()), ids.device)
        rows = {name: values.repeat_interleave(count, 0) for name, values in batch.items()}
        with self.autocast(hparams, ids.device):
            found = sample(
                self._step,
                self.model.encode(rows),
                max_lengths=limits.repeat_interleave(count, 0),
                numbers=numbers,
                sampler=Sampler(hparams.sampling_temp, hparams.sampling_keep_top_k, hparams.top_p),
                prefix=None if self.features.has_inputs else ids.repeat_interleave(count, 0),
            )
        together = zip(
            found.ids.view(len(inputs), count, -1).tolist(),
            found.scores.view(len(inputs), count).tolist(),
            strict=True,
        )
        return [self._prediction(ids, scores) for ids, scores in together]

    def autocast(self, hparams: DecodeHParams, device: torch.device) -> torch.autocast:
        """Returns the context of `activation_dtype`; weights are cast once in it, not each step."""
        asked = hparams.activation_dtype
        trained = self.model.hparams.activation_dtype
        return autocast(trained if asked == "as_trained" else asked, device)

    def _step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The model's step, without the logits that only fill `vocab_divisor` up."""
        logits, state = self.model.step(ids, state)
        return logits[:, : self._target.vocab_size], state

    def _prediction(self, rows: list[list[int]], scores: list[float]) -> Prediction:
        return Prediction(
            tuple(
                Hypothesis(self._target.decode(ids), tuple(ids), score)
                for ids, score in found_of(rows, scores)
            )
        )


def found_of(rows: list[list[int]], scores: list[float]) -> list[tuple[list[int], float]]:
    """Returns the ids, without end symbol and padding, and scores of an input's hypotheses."""
    found: list[tuple[list[int], float]] = []
    for row, score in zip(rows, scores, strict=True):
        if found and score <= NO_SCORE:
            break  # places that nothing filled
        ids = row[: row.index(EOS)] if EOS in row else row
        found.append((ids[: _content_length(ids)], score))
    return found


def _text_feature(problem: Problem, features: Mapping[str, Feature]) -> Text:
    """The one text among inputs or targets."""
    found = [feature for feature in features.values() if feature.aligned_to is None]
    if len(found) != 1 or not isinstance(found[0], Text):
        kinds = ", ".join(f"{name} ({type(kind).__name__})" for name, kind in features.items())
        raise DecodeError(
            f"problem {problem.full_name!r} has {kinds}: expected one Text to read and one to "
            "write. Call the model itself (Predictor.model) for its logits."
        )
    return found[0]


def _batches(lengths: Sequence[int], hparams: DecodeHParams) -> Iterator[list[int]]:
    """Yields indices of inputs of like lengths, the longest first."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        widest = max(1, lengths[order[start]])
        size = hparams.batch_size or max(1, hparams.batch_tokens // widest)
        yield order[start : start + size]
        start += size


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """[B, S] int64, PAD at the ends."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


def _content_length(ids: list[int]) -> int:
    """How many ids there are before the padding at the end."""
    length = len(ids)
    while length and ids[length - 1] == PAD:
        length -= 1
    return length
