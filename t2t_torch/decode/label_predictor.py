"""Prediction of labels, numbers or spans with a trained model."""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from t2t_torch.data.shards import Ragged, value_dtype
from t2t_torch.decode.outputs import named_scores
from t2t_torch.decode.predictor import Picklable, do_nothing, input_columns
from t2t_torch.distributed.precision import autocast
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DataError
from t2t_torch.features import Feature, Features
from t2t_torch.features.feature import find_alignments
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.modality import RowPrediction
from t2t_torch.model import T2TModel
from t2t_torch.pipeline.collate import padded
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.reader import LengthLimits, RowReader, numbers_per_position
from t2t_torch.problem import Problem
from t2t_torch.runtime.prediction import Input, InputError, Prediction
from t2t_torch.runtime.session import batches_of

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.predictor import RunInfo


def check_aligned(
    features: Mapping[str, Feature], sample: Mapping[str, Any], row: Mapping[str, Sequence[Any]]
) -> None:
    """Checks that word-aligned fields have as many entries as there are words.

    Args:
      features: features that encode the input.
      sample: fields of the input.
      row: encoded values by feature.

    Raises:
      DataError: a field has more or fewer.
    """
    for name, of in find_alignments(features).items():
        if of not in features:
            continue
        feature = features[name]
        field, words_field = feature.source or name, features[of].source or of
        if field == words_field:
            continue
        words = words_of(sample[words_field])
        if (entries := len(row[name]) // numbers_per_position(feature)) != len(words):
            raise DataError(
                f"{len(words)} words and {entries} {field}, where one for each word was expected: "
                f"{list(words)!r}, {reprlib.repr(sample[field])}."
            )


_BATCH_TOKENS = 8192


class _EncodedSample(NamedTuple):
    """One of the samples of `Problem.inputs_of`, and its encoded values."""

    sample: Mapping[str, Any]
    row: Mapping[str, Sequence[Any]]


class EncodedInput(NamedTuple):
    """An encoded input.

    Attributes:
      sample: the given values by field.
      parts: the encoded samples of `Problem.inputs_of`; at least one.
    """

    sample: Mapping[str, Any]
    parts: Sequence[_EncodedSample]


class LabelPredictor(Picklable):
    """Predicts labels, numbers or spans.  `loading.load` creates one.

    Inputs are truncated as in evaluation: to `max_input_seq_length`, and to the longest row that
    fits in a batch.  Words to be tagged are not truncated but rejected.  The model computes in the
    run's `activation_dtype`, as in evaluation.

    Args:
      model: model on the device to compute on.
      problem: the problem that the model was trained on.
      features: features of the problem, with the vocabularies that the model was trained with.
      run: the run that the weights come from; None if there is none.

    Attributes:
      fields: names of the fields of an input.
      kinds: for each field, the first feature created from it.
      specs: for each field, the form of its values.
      lists: names of the fields that are lists: of words, utterances, numbers.
      columns: columns of the fields.
      limits: maximum lengths of inputs.
      before_batch: called before each batch; an exception that it raises ends the prediction.
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
        self.before_batch: Callable[[], None] = do_nothing
        self._given = features.given
        self.kinds: dict[str, Feature] = {}
        for name, feature in self._given.items():
            self.kinds.setdefault(feature.source or name, feature)
        bound = Batching.of(problem, model.hparams).bound
        self.limits = LengthLimits.of(features, model.hparams, bound=bound)
        self.fields = tuple(self.kinds)
        self.specs = {field: kind.input_spec(field, features) for field, kind in self.kinds.items()}
        # A span is found in the written text, which the problem splits into words.
        targets = features.targets.items()
        if "span" in [feature.output_spec(name, features).kind for name, feature in targets]:
            for field, spec in self.specs.items():
                if spec.kind == "words":
                    self.specs[field] = dataclasses.replace(spec, kind="text")
        self.lists = {field for field, spec in self.specs.items() if spec.kind != "text"}
        self.columns = input_columns(problem, {f: spec.kind for f, spec in self.specs.items()})

    def __call__(self, inputs: Sequence[Input]) -> list[Any]:
        """Returns the predicted value for each input, in input order; see `Prediction.value`."""
        return [answer.value for answer in self.predict(inputs)]

    def predict(self, inputs: Sequence[Input]) -> list[Prediction]:
        """Returns the prediction for each input, in input order.

        Args:
          inputs: texts, if an input consists of a single text; else mappings by field.

        Raises:
          InputError: an input cannot be encoded; the message names it.
          DecodeError: an input lacks a field or is not a mapping, or `inputs` is a single text.
        """
        return self.predict_encoded(self.encode(inputs))

    def encode(self, inputs: Sequence[Input]) -> list[EncodedInput]:
        """Returns inputs in the form read by `predict_encoded`; raises the errors of `predict`."""
        return [
            EncodedInput(sample, self._parts(number, sample))
            for number, sample in enumerate(self.columns.whole_samples(inputs))
        ]

    def predict_encoded(self, inputs: Sequence[EncodedInput]) -> list[Prediction]:
        """Returns the prediction for each input of `encode`, in input order."""
        parts = [part for one in inputs for part in one.parts]
        found = dict(itertools.chain.from_iterable(self.predict_batches(parts)))
        return self.answers(inputs, [found[number] for number in range(len(parts))])

    def predict_batches(
        self,
        parts: Sequence[_EncodedSample],
        hparams: DecodeHParams | None = None,
        done: Container[int] = (),
    ) -> Iterator[list[tuple[int, Prediction]]]:
        """Yields (number of the part, prediction), one list per batch, the longest parts first.

        Args:
          parts: parts of the inputs; see `EncodedInput`.
          hparams: decoding settings, which no prediction of labels reads.
          done: numbers of parts that need no prediction.  Batches with only such parts are skipped;
            the other batches do not change.
        """
        lengths = [max(map(len, part.row.values())) for part in parts]
        for numbers in batches_of(lengths, _BATCH_TOKENS, _BATCH_TOKENS):
            if all(number in done for number in numbers):
                continue
            self.before_batch()
            batch = self._batch([parts[number].row for number in numbers])
            values = self._values(batch, [parts[number].sample for number in numbers])
            yield list(zip(numbers, values, strict=True))

    def answers(
        self, inputs: Sequence[EncodedInput], predictions: Sequence[Prediction]
    ) -> list[Prediction]:
        """Returns the predictions of inputs from those of all their parts, in order."""
        left = iter(predictions)
        answers = []
        for one in inputs:
            parts = list(itertools.islice(left, len(one.parts)))
            answers.append(
                Prediction.joined(
                    self.problem.answer_of(name, [part.of(name) for part in parts], one.sample)
                    for name in self.features.targets
                )
            )
        return answers

    def batch_of(self, inputs: Sequence[Input]) -> dict[str, Tensor]:
        """Returns the batch of inputs for the model; raises the errors of `predict`."""
        return self._batch([part.row for one in self.encode(inputs) for part in one.parts])

    def _parts(self, number: int, sample: Mapping[str, Any]) -> list[_EncodedSample]:
        try:
            texts = {f: spec.tokenizer for f, spec in self.specs.items() if spec.tokenizer}
            words = {field: words_of(sample[field], texts[field]) for field in texts}
            sample = {**sample, **words}
            parts = [
                _EncodedSample(part, self._encoded(part)) for part in self.problem.inputs_of(sample)
            ]
            for part in parts:
                self._check_tagged(part)
            return parts
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        except (TypeError, ValueError, AttributeError):  # a problem that reads fields
            description = reprlib.repr({field: sample[field] for field in self.fields})
            raise InputError(number, f"{description} has an unexpected format.") from None

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

    def _check_tagged(self, part: _EncodedSample) -> None:
        """Raises DataError if words to be tagged exceed the lengths that the model reads."""
        for of in find_alignments(self.features.targets).values():
            if (limit := self.limits.by_feature.get(of)) and len(part.row[of]) > limit:
                raise DataError(
                    f"{of!r} has {len(part.row[of])} ids, and "
                    f"this model was trained on {limit} at most. Cut the text."
                )

    def _batch(self, rows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Tensor]:
        """Returns the batch of encoded inputs, truncated as in evaluation."""
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
        with autocast(self.model.hparams.activation_dtype, next(self.model.parameters()).device):
            output = self.model.logits(batch)
        for name, logits in output.items():
            modality: Any = self.model.modalities[name]
            guesses[name] = modality.predict(logits).rows()
        targets, sources = self.features.targets, self.features.sources
        aligned = {name: sources[of] for name, of in find_alignments(targets).items()}
        found = []
        for i, sample in enumerate(samples):
            words = {name: len(words_of(sample[field])) for name, field in aligned.items()}
            found.append(
                Prediction.joined(
                    prediction_of(name, targets[name], guess[i], words.get(name))
                    for name, guess in guesses.items()
                )
            )
        return found


def prediction_of(
    name: str, feature: Feature, prediction: RowPrediction, words: int | None = None
) -> Prediction:
    """Returns the prediction of a target from the model's values for an example.

    Args:
      name: name of the target.
      feature: feature of the target.
      prediction: predicted values, probability and scores.
      words: length of the sequence without padding; None if it is not a sequence.
    """
    numbers, probability, scores = prediction
    named = None if scores is None else named_scores(feature, list(scores)[:words])
    return Prediction.of_value(name, feature.decode(numbers[:words]), probability, named)


class _Encoded(NamedTuple):
    """Encoded inputs with the interface of shards' rows."""

    rows: Mapping[str, Ragged]

    def column(self, feature: str) -> list[tuple[Any, Any]]:
        """Returns a feature's rows: values and offsets."""
        return [(self.rows[feature].values, self.rows[feature].offsets)]
