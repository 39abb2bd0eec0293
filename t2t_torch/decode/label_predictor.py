"""A trained model that labels: a list of inputs in, a list of labels, numbers or spans out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from t2t_torch.data.ragged import Ragged, value_dtype
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import Features, Span, Tags
from t2t_torch.features.text import words_of
from t2t_torch.model import T2TModel
from t2t_torch.pipeline.collate import padded
from t2t_torch.problem import Problem

if TYPE_CHECKING:
    from t2t_torch.decode.predictor import RunInfo

Input: TypeAlias = str | Mapping[str, Any]
"""An example's inputs by field of a sample; or the text alone where there is no other field."""

_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Answer:
    """What was found for one input.

    Attributes:
      values: by target: a label, a list of tags, numbers, the words of a span.
      probabilities: by target, of the value; of those that have one.
    """

    values: Mapping[str, Any]
    probabilities: Mapping[str, float]

    @property
    def value(self) -> Any:
        """The value of the only target, or all of them by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)


class LabelPredictor:
    """A model that answers with labels, numbers or spans.  `loading.load` makes one.

    Args:
      model: on the device where it shall compute.
      problem: what it has learnt.
      features: the problem's, with the vocabularies that the model was trained with.
      run: where the weights came from; None if from nowhere.

    Attributes:
      fields: what an input consists of.
    """

    def __init__(
        self, model: T2TModel, problem: Problem, features: Features, run: RunInfo | None = None
    ) -> None:
        self.model = model.eval()
        self.problem = problem
        self.features = features
        self.run = run
        weights = {name for name in features.notes if features.notes[name].aligned_to is None}
        self._given = {
            name: feature
            for name, feature in features.all.items()
            if name not in features.targets and name not in weights
        }
        sources = [feature.source or name for name, feature in self._given.items()]
        self.fields = tuple(dict.fromkeys(sources))

    def __call__(self, inputs: Sequence[Input]) -> list[Any]:
        """Returns the value found for each input, in their order; see `Answer.value`."""
        return [answer.value for answer in self.predict(inputs)]

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """Returns what was found for each input, in their order.

        Args:
          inputs: texts, where a text is all that an input is; else mappings by field.

        Raises:
          DataError: an input cannot be encoded; names it.
          DecodeError: an input lacks a field, or `inputs` is one text, not a list.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        samples = [self._sample(number, given) for number, given in enumerate(inputs)]
        rows = [self._encoded(number, sample) for number, sample in enumerate(samples)]
        found: dict[int, Answer] = {}
        for numbers in _batches([max(map(len, row.values())) for row in rows]):
            batch = self._batch([rows[number] for number in numbers])
            answers = self._answers(batch, [samples[number] for number in numbers])
            found.update(zip(numbers, answers, strict=True))
        return [found[number] for number in range(len(samples))]

    def _sample(self, number: int, given: Input) -> Mapping[str, Any]:
        sample = {self.fields[0]: given} if isinstance(given, str) else given
        missing = [field for field in self.fields if field not in sample]
        if missing:
            raise DecodeError(
                f"input {number} has no {', '.join(missing)}; {self.problem.full_name!r} is asked "
                f"with the fields {', '.join(self.fields)}. Give a mapping (in a file a JSON "
                "object, one a line)."
            )
        return self.problem.inputs_of(sample)

    def _encoded(self, number: int, sample: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        try:
            return {
                name: feature.encode(sample[feature.source or name])
                for name, feature in self._given.items()
            }
        except (DataError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"input {number} cannot be encoded: {error}") from None

    def _batch(self, rows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Tensor]:
        device = next(self.model.parameters()).device
        batch = {}
        for name, feature in self._given.items():
            dtype = value_dtype(feature.arrow_type)
            ragged = Ragged.from_lists([row[name] for row in rows], dtype)
            batch[name] = torch.from_numpy(padded(feature, ragged)).to(device)
        return batch

    @torch.inference_mode()
    def _answers(
        self, batch: dict[str, Tensor], samples: Sequence[Mapping[str, Any]]
    ) -> Iterator[Answer]:
        guesses: dict[str, Any] = {}
        for name, logits in self.model.logits(batch).items():
            modality: Any = self.model.modalities[name]
            guesses[name] = modality.predict(logits)
        for i, sample in enumerate(samples):
            values, probabilities = {}, {}
            for name, found in guesses.items():
                numbers, probability = found[i]
                values[name] = self._value(name, numbers, sample)
                if probability is not None:
                    probabilities[name] = probability
            yield Answer(values, probabilities)

    def _value(self, name: str, numbers: Sequence[Any], sample: Mapping[str, Any]) -> Any:
        feature = self.features.targets[name]
        if isinstance(feature, Tags | Span):
            words = words_of(sample[self.features.sources[feature.of]])
            if isinstance(feature, Tags):
                return feature.decode(numbers[: len(words)])
            span = feature.decode(numbers)
            return "" if span is None else " ".join(words[span[0] : span[1] + 1])
        return feature.decode(numbers)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields numbers of inputs of like lengths, the longest first."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        size = max(1, _BATCH_TOKENS // max(1, lengths[order[0]]))
        yield order[:size]
        order = order[size:]
