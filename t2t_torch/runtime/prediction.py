"""Predictions, inputs, and their JSON records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features.text import words_of
from t2t_torch.runtime.columns import InputColumns
from t2t_torch.text.tags import TagScheme, scheme_of
from t2t_torch.text.tokenizer import tokenize


@dataclass(frozen=True)
class Hypothesis:
    """One generated output for an input.

    Attributes:
      text: decoded text of the ids.
      ids: generated ids without the end symbol.
      score: log-probability (nats), divided by the length penalty if the beam is wider than 1.
      repaired: True if the ids are not a valid tree and were repaired; always False for texts.
      alignment: with `write_alignments`, pairs (input word index, output word index), from 0.
    """

    text: str
    ids: tuple[int, ...]
    score: float
    repaired: bool = False
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Attention:
    """Attention weights from the output words to the input words.

    Attributes:
      read: input words, as written by the vocabulary.
      written: output words.
      weights: weights of each output word over the input words; the remainder to 1 is the weight
        of the input's end symbol.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Prediction:
    """Prediction of a model for one input.

    Runs, artifacts and trials have the same method: `predict(inputs) -> list[Prediction]`.

    Attributes:
      values: predicted value by target: a label, a list of tags, numbers, a text, a text span.
      probabilities: probability of the value by target; only targets that have one.
      scores: by target, the probability of each label, highest first; for tags, the probability of
        each word's tag; only targets that have them.
      hypotheses: hypotheses of a generated target, at least one, best first: more than one only
        with `return_beams`, or with `num_decodes`, where they are in the order of sampling.
      attention: attention of the best hypothesis, if requested.
    """

    values: Mapping[str, Any]
    probabilities: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float] | Sequence[float]] = field(default_factory=dict)
    hypotheses: tuple[Hypothesis, ...] = ()
    attention: Attention | None = None

    @classmethod
    def of_texts(
        cls, target: str, hypotheses: Sequence[Hypothesis], attention: Attention | None = None
    ) -> Prediction:
        """Returns the prediction of a text target from its hypotheses, best first."""
        text = hypotheses[0].text
        return cls({target: text}, hypotheses=tuple(hypotheses), attention=attention)

    @classmethod
    def of_value(
        cls,
        target: str,
        value: Any,
        probability: float | None = None,
        scores: Mapping[str, float] | Sequence[float] | None = None,
    ) -> Prediction:
        """Returns the prediction of one target."""
        return cls(
            {target: value},
            {} if probability is None else {target: probability},
            {} if scores is None else {target: scores},
        )

    @classmethod
    def joined(cls, predictions: Iterable[Prediction]) -> Prediction:
        """Returns the predictions of different targets of one input merged into one."""
        values: dict[str, Any] = {}
        probabilities: dict[str, float] = {}
        scores: dict[str, Any] = {}
        for one in predictions:
            values |= one.values
            probabilities |= one.probabilities
            scores |= one.scores
        return cls(values, probabilities, scores)

    def of(self, target: str) -> Prediction:
        """Returns the prediction of one of several targets."""
        probability, scores = self.probabilities.get(target), self.scores.get(target)
        return Prediction.of_value(target, self.values[target], probability, scores)

    @property
    def value(self) -> Any:
        """The value of the only target, or the values of all targets by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)

    @property
    def probability(self) -> float | None:
        """The probability of the only target's value; None if it has none."""
        return next(iter(self.probabilities.values()), None)

    @property
    def text(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The score of the best hypothesis."""
        return self.hypotheses[0].score


class Predicts(Protocol):
    """Interface of runs, artifacts and trials for inference."""

    def predict(self, inputs: Sequence[Any]) -> Sequence[Prediction]:
        """Returns the predictions of the inputs in order."""


# Inputs, of a run's model or an artifact.


Input: TypeAlias = str | Mapping[str, Any]
"""An input as a mapping by field, or as a plain text if the text is the only field."""


class InputError(DataError):
    """An input that cannot be encoded.

    Attributes:
      number: index of the input, from 0.
      why: reason.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"input {number} cannot be encoded: {why}")
        self.number = number
        self.why = why


@dataclass(frozen=True)
class Question:
    """Expected fields of the inputs, or the columns in place of them.

    Attributes:
      columns: columns of the fields.
    """

    columns: InputColumns

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an input."""
        return tuple(self.columns.kinds)

    def samples(self, inputs: Sequence[Input]) -> list[Mapping[str, Any]]:
        """Returns the inputs, or the rows of a table, as mappings by field.

        Raises:
          DecodeError: an input lacks a field or is not a mapping, or `inputs` is a single input
            instead of a list.
          InputError: a text of an input cannot be encoded as UTF-8; names the input.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        rows = self.columns.samples(inputs)
        return [self._sample(number, value) for number, value in enumerate(rows)]

    def sample_of(self, value: Input) -> Mapping[str, Any]:
        """Returns an input as a mapping by field."""
        if isinstance(value, str | bytes | Path):
            return {self.fields[0]: value}
        return self.columns.sample(value) if isinstance(value, Mapping) else value

    def _sample(self, number: int, value: Input) -> Mapping[str, Any]:
        sample = self.sample_of(value)
        if not isinstance(sample, Mapping):
            raise DecodeError(
                f"input {number} is {value!r}, where a text or a mapping with the fields "
                f"{', '.join(self.fields)} was expected."
            )
        missing = [field for field in self.fields if field not in sample]
        if missing:
            raise DecodeError(
                f"input {number} has no {', '.join(missing)}; {self.columns.problem!r} takes "
                f"the fields {self.columns}. Give a mapping (in a file a JSON object, one a line)."
            )
        for name in self.fields:
            _check_sound(number, sample[name])
        return sample


def _check_sound(number: int, value: Any) -> None:
    """Raises InputError if a text, or a text of a list, contains an unpaired surrogate."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for text in (one for one in texts if isinstance(one, str)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                number,
                f"{text!r} has a lone surrogate at character {error.start + 1}, "
                f"{text[error.start]!r}: it is no text that was read as UTF-8.",
            ) from None


# Predictions as JSON records.


BEST = 5
"""Default number of labels returned with their probabilities."""

_DIGITS = 6  # decimals of probabilities: the precision of float32


def value_record(prediction: Prediction, target: str, best: int = BEST) -> dict[str, Any]:
    """Returns the predicted value of a target as a JSON record.

    The record has the `value`; the `probability`, if any; and the `probabilities` of the best
    labels, or, for tags, the probability of each word's tag.

    Args:
      prediction: prediction of an input.
      target: one of its targets.
      best: number of labels whose probabilities are included.
    """
    record: dict[str, Any] = {"value": prediction.values[target]}
    if target in prediction.probabilities:
        record["probability"] = round(prediction.probabilities[target], _DIGITS)
    scores = prediction.scores.get(target)
    if isinstance(scores, Mapping):
        first = list(scores.items())[:best]
        record["probabilities"] = {label: round(score, _DIGITS) for label, score in first}
    elif scores is not None:
        record["probabilities"] = [round(score, _DIGITS) for score in scores]
    return record


def words_record(
    tags: Sequence[str], value: str | Sequence[str], labels: Sequence[str], tokenizer: str = ""
) -> dict[str, Any]:
    """Returns the additional fields of tags: their `words`, and the `spans` that they mark.

    For a text that a tokenizer splits, `offsets` are the start and the end (exclusive) of each
    word in characters of the text, and each span has a `start` and an `end`.

    Args:
      tags: predicted tags.
      value: the tagged text or words.
      labels: all tags; the record has no `spans` if they do not mark spans.
      tokenizer: expression of a word of the problem's tokenizer; "" if it has none.
    """
    tokens = tokenize(value, tokenizer) if tokenizer and isinstance(value, str) else None
    words = words_of(value) if tokens is None else [token.text for token in tokens]
    record: dict[str, Any] = {"words": list(words)}
    if tokens is not None:
        record["offsets"] = [[token.start, token.end] for token in tokens]
    scheme = scheme_of(labels)
    if scheme.letters:
        record["spans"] = span_records(scheme, tags, words)
        if tokens is not None:
            for span in record["spans"]:
                start, end = tokens[span["first"]].start, tokens[span["last"]].end
                span |= {"text": value[start:end], "start": start, "end": end}
    return record


def prediction_record(
    prediction: Prediction, *, ids: bool = False, alignments: bool = False
) -> dict[str, Any]:
    """Returns an output as a JSON record: `value` and `score`, and each of several hypotheses.

    Args:
      prediction: prediction of a text.
      ids: if True, includes the `ids`.
      alignments: if True, includes the `alignment`: pairs of word indices, the input's first.
    """
    records = []
    for hypothesis in prediction.hypotheses:
        record: dict[str, Any] = {"value": hypothesis.text, "score": hypothesis.score}
        if ids:
            record["ids"] = list(hypothesis.ids)
        if alignments:
            record["alignment"] = [list(pair) for pair in hypothesis.alignment]
        records.append(record)
    several = {"hypotheses": records} if len(records) > 1 else {}
    return {**records[0], **several}


def attention_record(attention: Attention) -> dict[str, Any]:
    """Returns attention weights as a JSON record.

    It has the input words (`read`), the output words (`written`), and the `weights` of each output
    word over the input words.
    """
    return {
        "read": list(attention.read),
        "written": list(attention.written),
        "weights": [[round(weight, _DIGITS) for weight in row] for row in attention.weights],
    }


def span_records(
    scheme: TagScheme, tags: Sequence[str], words: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the spans that tags mark: `kind`, `first` and `last` word, from 0, and `text`."""
    return [
        {
            "kind": span.kind,
            "first": span.first,
            "last": span.last,
            "text": " ".join(words[span.first : span.last + 1]),
        }
        for span in scheme.spans([tag or "O" for tag in tags])
    ]
