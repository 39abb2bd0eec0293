"""A trained model that labels: a list of inputs in, a list of labels, numbers or spans out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from t2t_torch.data.shards import Ragged, value_dtype
from t2t_torch.decode.journal import Journal
from t2t_torch.decode.outputs import DecodeProgress
from t2t_torch.distributed.precision import autocast
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DataError
from t2t_torch.features import Feature, Features
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.modality import RowPrediction
from t2t_torch.model import T2TModel
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.reader import Limits, RowReader, numbers_per_position, padded
from t2t_torch.problem import Problem
from t2t_torch.runtime.prediction import Input, InputError, Prediction, Question
from t2t_torch.runtime.session import batches_of

if TYPE_CHECKING:
    from t2t_torch.decode.predictor import RunInfo


# Whether what is given of words has an entry for each of them.


def check_aligned(
    features: Mapping[str, Feature], sample: Mapping[str, Any], row: Mapping[str, Sequence[Any]]
) -> None:
    """Checks that fields with an entry for each word have as many as there are words.

    Args:
      features: that an input is encoded by.
      sample: the input's fields.
      row: by feature, what they are encoded as.

    Raises:
      DataError: a field has more or fewer.
    """
    for name, feature in features.items():
        of = feature.aligned_to
        if of is None or of not in features:
            continue
        field, words_field = feature.source or name, features[of].source or of
        if field == words_field:
            continue
        words = words_of(sample[words_field])
        entries = len(row[name]) // numbers_per_position(feature)
        if entries != len(words):
            raise DataError(
                f"{len(words)} words and {entries} {field}, where one for each word was expected: "
                f"{list(words)!r}, {reprlib.repr(sample[field])}."
            )


_BATCH_TOKENS = 8192


class _Part(NamedTuple):
    """One of `Problem.inputs_of`, and its numbers."""

    sample: Mapping[str, Any]
    row: Mapping[str, Sequence[Any]]


class EncodedInput(NamedTuple):
    """An input as a model reads it.

    Attributes:
      sample: by field, as it was given.
      parts: of `Problem.inputs_of`, encoded; at least one.
    """

    sample: Mapping[str, Any]
    parts: Sequence[_Part]


class LabelPredictor:
    """A model that answers with labels, numbers or spans.  `loading.load` makes one.

    Inputs are cut as those of evaluation are: to `max_input_seq_length`, and to the longest that a
    batch may hold.  Words that are to be tagged are not cut but refused.  What the model computes
    with is the run's `activation_dtype`, as in evaluation.

    Args:
      model: on the device where it shall compute.
      problem: what it has learnt.
      features: the problem's, with the vocabularies that the model was trained with.
      run: where the weights came from; None if from nowhere.

    Attributes:
      fields: what an input consists of.
      kinds: by field, the first of the features that are made of it.
      specs: by field, the form of its values.
      lists: the fields that are given as lists: of words, utterances, numbers.
      limits: to what length they are cut.
      before_batch: called before each batch is labelled; what it raises ends the labelling.
    """

    def __init__(
        self,
        model: T2TModel | Ensemble,
        problem: Problem,
        features: Features,
        run: RunInfo | None = None,
    ) -> None:
        self.model = model.eval()
        self.problem = problem
        self.features = features
        self.run = run
        self.before_batch: Callable[[], None] = lambda: None
        self._given = features.given
        self.kinds: dict[str, Feature] = {}
        for name, feature in self._given.items():
            self.kinds.setdefault(feature.source or name, feature)
        bound = Batching.of(problem, model.hparams).bound
        self.limits = Limits.of(features, model.hparams, bound=bound)
        self.fields = tuple(self.kinds)
        self._question = Question(problem.full_name, self.fields)
        self.specs = {field: its.input_spec(field, features) for field, its in self.kinds.items()}
        # A span is found in a text as it is written, which the problem cuts into words.
        if any(feature.selects_words for feature in features.targets.values()):
            for field, spec in self.specs.items():
                if spec.kind == "words":
                    self.specs[field] = dataclasses.replace(spec, kind="text")
        self.lists = {field for field, spec in self.specs.items() if spec.kind != "text"}

    def __call__(self, inputs: Sequence[Input]) -> list[Any]:
        """Returns the value found for each input, in their order; see `Prediction.value`."""
        return [answer.value for answer in self.predict(inputs)]

    def predict(self, inputs: Sequence[Input]) -> list[Prediction]:
        """Returns what was found for each input, in their order.

        Args:
          inputs: texts, where a text is all that an input is; else mappings by field.

        Raises:
          InputError: an input cannot be encoded; names it.
          DecodeError: an input lacks a field or is no mapping, or `inputs` is one text, not a list.
        """
        return self.predict_encoded(self.encode(inputs))

    def encode(self, inputs: Sequence[Input]) -> list[EncodedInput]:
        """Returns inputs as `predict_encoded` takes them; raises what `predict` raises."""
        samples = self._question.samples(inputs)
        return [
            EncodedInput(sample, self._parts(number, sample))
            for number, sample in enumerate(samples)
        ]

    def predict_encoded(
        self, inputs: Sequence[EncodedInput], journal: Journal | None = None
    ) -> list[Prediction]:
        """Returns what was found for each input, in their order.

        Args:
          inputs: from `encode`.
          journal: has what was found before, and is told of each batch; how many are done is shown.
        """
        parts = [part for one in inputs for part in one.parts]
        found = iter(self._found(parts, journal or Journal(), shown=journal is not None))
        return [
            self._answer(one.sample, list(itertools.islice(found, len(one.parts))))
            for one in inputs
        ]

    def _found(self, parts: Sequence[_Part], journal: Journal, *, shown: bool) -> list[Prediction]:
        """Returns the prediction of each part."""
        found: dict[int, Prediction] = {
            number: Prediction.joined(Prediction.of_value(name, *one) for name, one in kept.items())
            for number, kept in journal.found.items()
        }
        before = len(found)
        lengths = [max(map(len, part.row.values())) for part in parts]
        with contextlib.ExitStack() as stack:
            progress = DecodeProgress(len(parts), before=before, journal=journal.path)
            if shown:
                stack.enter_context(progress)
            for numbers in batches_of(lengths, _BATCH_TOKENS, _BATCH_TOKENS):
                if all(number in found for number in numbers):
                    continue
                self.before_batch()
                batch = self._batch([parts[number].row for number in numbers])
                values = self._values(batch, [parts[number].sample for number in numbers])
                found.update(zip(numbers, values, strict=True))
                journal.add(list(zip(numbers, map(_kept, values), strict=True)))
                if shown:
                    progress.advance(len(numbers))
        return [found[number] for number in range(len(parts))]

    def _answer(self, sample: Mapping[str, Any], parts: Sequence[Prediction]) -> Prediction:
        """Returns the prediction of a sample, given those of its parts."""
        return Prediction.joined(
            self.problem.answer_of(name, [part.of(name) for part in parts], sample)
            for name in self.features.targets
        )

    def sample_of(self, given: Input) -> Mapping[str, Any]:
        """Returns an input as a mapping by field."""
        return self._question.sample_of(given)

    def batch_of(self, inputs: Sequence[Input]) -> dict[str, Tensor]:
        """Returns the batch of inputs, as the model is given it; raises what `predict` raises."""
        return self._batch([part.row for one in self.encode(inputs) for part in one.parts])

    def _parts(self, number: int, sample: Mapping[str, Any]) -> list[_Part]:
        try:
            parts = [_Part(part, self._encoded(part)) for part in self.problem.inputs_of(sample)]
            for part in parts:
                self._check_tagged(part)
            return parts
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        except (TypeError, ValueError, AttributeError):  # of a family that looks into fields
            told = reprlib.repr({field: sample[field] for field in self.fields})
            raise InputError(number, f"{told} is not of the form that was expected.") from None

    def _encoded(self, sample: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        for field, spec in self.specs.items():
            if spec.kind == "words":
                check_whole(words_of(sample[field]))
        row = {
            name: feature.encode(sample[feature.source or name])
            for name, feature in self._given.items()
        }
        check_aligned(self._given, sample, row)
        return row

    def _check_tagged(self, part: _Part) -> None:
        """Raises DataError if words that want a tag are beyond what the model reads."""
        for feature in self.features.targets.values():
            limit = self.limits.by_feature.get(feature.aligned_to or "")
            if limit and len(part.row[str(feature.aligned_to)]) > limit:
                raise DataError(
                    f"{feature.aligned_to!r} has {len(part.row[str(feature.aligned_to)])} ids, and "
                    f"this model was trained on {limit} at most. Cut the text."
                )

    def _batch(self, rows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Tensor]:
        """Returns the batch of encoded inputs, cut as those of evaluation are."""
        device = next(self.model.parameters()).device
        encoded = _Encoded(
            {
                name: Ragged.from_lists([row[name] for row in rows], value_dtype(f.arrow_type))
                for name, f in self._given.items()
            }
        )
        reader = RowReader(encoded, self._given, {n: n for n in self._given}, self.limits)
        read = reader.read(np.arange(len(rows)))
        return {
            name: torch.from_numpy(padded(feature, read[name])).to(device)
            for name, feature in self._given.items()
        }

    @torch.inference_mode()
    def _values(
        self, batch: dict[str, Tensor], samples: Sequence[Mapping[str, Any]]
    ) -> list[Prediction]:
        guesses: dict[str, Any] = {}
        device = next(self.model.parameters()).device
        with autocast(self.model.hparams.activation_dtype, device):
            found = self.model.logits(batch)
        for name, logits in found.items():
            modality: Any = self.model.modalities[name]
            guesses[name] = modality.predict(logits).rows()
        return [
            Prediction.joined(
                self._value(name, guess[i], sample) for name, guess in guesses.items()
            )
            for i, sample in enumerate(samples)
        ]

    def _value(self, name: str, guess: RowPrediction, sample: Mapping[str, Any]) -> Prediction:
        feature, words = self.features.targets[name], None
        if feature.aligned_to is not None:
            words = len(words_of(sample[self.features.sources[feature.aligned_to]]))
        return prediction_of(name, feature, guess, words)


def _kept(prediction: Prediction) -> dict[str, list[Any]]:
    """Returns the prediction of a part as a journal keeps it."""
    probabilities, scores = prediction.probabilities, prediction.scores
    return {
        name: [value, probabilities.get(name), scores.get(name)]
        for name, value in prediction.values.items()
    }


def prediction_of(
    name: str, feature: Feature, guess: RowPrediction, words: int | None = None
) -> Prediction:
    """Returns the prediction of a target, given the numbers of an example.

    Args:
      name: the target.
      feature: the target's.
      guess: numbers, probability and scores.
      words: length of the sequence without padding; None if it is no sequence.
    """
    numbers, probability, scores = guess
    named = None if scores is None else feature.named_scores(list(scores)[:words])
    return Prediction.of_value(name, feature.decode(numbers[:words]), probability, named)


class _Encoded(NamedTuple):
    """Inputs that were encoded, to be read as the rows of shards are."""

    rows: Mapping[str, Ragged]

    def column(self, feature: str) -> list[tuple[Any, Any]]:
        """Returns a feature's rows, values and offsets."""
        return [(self.rows[feature].values, self.rows[feature].offsets)]
