"""Predictions: the record of an answer, the inputs, and their form in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.text.tags import marks_spans, spans_of


@dataclass(frozen=True)
class Hypothesis:
    """One answer to an input.

    Attributes:
      text: what the ids mean.
      ids: what the model made, the end symbol left out.
      score: log-probability (nats), over the length penalty if the beam is wider than 1.
      mended: whether the ids build no tree as they stand; false of texts.
      alignment: with `write_alignments`, which word of the input each word of the output comes
        from: pairs of their numbers, from 0.
    """

    text: str
    ids: tuple[int, ...]
    score: float
    mended: bool = False
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Attention:
    """What each word of an output looks at in the input.

    Attributes:
      read: words of the input, as the vocabulary writes them.
      written: words of the output.
      weights: of each word that is written, to each that is read; what they lack to 1 goes to the
        input's end symbol.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Prediction:
    """What a model predicts for one input.

    A run, an artifact and a trial return the same: `predict(inputs) -> list[Prediction]`.

    Attributes:
      values: by target: a label, a list of tags, numbers, a text, a part of a text.
      probabilities: by target, of the value; only of targets that have one.
      scores: by target, the probability of each label, highest first; of tags, that of each word's
        tag; only of targets that have them.
      hypotheses: of a target that is generated, at least one, best first: more than one only with
        `return_beams`, or `num_decodes` draws in the order of their numbers.
      attention: of the best hypothesis, if requested.
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
        """Returns the prediction of a text, given its hypotheses, best first."""
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
        """Returns predictions of different targets of one input as one."""
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
        """The value of the only target, or all of them by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)

    @property
    def probability(self) -> float | None:
        """The probability of the value of the only target; None if it has none."""
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
    """A model that is asked: a run, an artifact or a trial."""

    def predict(self, inputs: Sequence[Any]) -> Sequence[Prediction]:
        """Returns the predictions of inputs, in their order."""


# Inputs, of a run's model or an artifact.


Input: TypeAlias = str | Mapping[str, Any]
"""An example's inputs by field of a sample; or the text alone where there is no other field."""


class InputError(DataError):
    """An input that cannot be encoded.

    Attributes:
      number: of the input, from 0.
      why: what is wrong with it.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"input {number} cannot be encoded: {why}")
        self.number = number
        self.why = why


@dataclass(frozen=True)
class Question:
    """What is asked of each input.

    Attributes:
      problem: its full name, for errors.
      fields: what an input consists of.
    """

    problem: str
    fields: Sequence[str]

    def samples(self, inputs: Sequence[Input]) -> list[Mapping[str, Any]]:
        """Returns the inputs as mappings by field.

        Raises:
          DecodeError: an input lacks a field or is no mapping, or `inputs` is one input, not a
            list.
          InputError: a text of an input cannot be written in UTF-8; names it.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        if isinstance(inputs, Mapping):
            raise DecodeError("inputs should be a list of mappings, not a mapping: predict([one])")
        return [self._sample(number, given) for number, given in enumerate(inputs)]

    def sample_of(self, given: Input) -> Mapping[str, Any]:
        """Returns an input as a mapping by field."""
        return {self.fields[0]: given} if isinstance(given, str) else given

    def _sample(self, number: int, given: Input) -> Mapping[str, Any]:
        sample = self.sample_of(given)
        if not isinstance(sample, Mapping):
            raise DecodeError(
                f"input {number} is {given!r}, where a text or a mapping with the fields "
                f"{', '.join(self.fields)} was expected."
            )
        missing = [field for field in self.fields if field not in sample]
        if missing:
            raise DecodeError(
                f"input {number} has no {', '.join(missing)}; {self.problem!r} is asked "
                f"with the fields {', '.join(self.fields)}. Give a mapping (in a file a JSON "
                "object, one a line)."
            )
        for name in self.fields:
            _check_sound(number, sample[name])
        return sample


def _check_sound(number: int, value: Any) -> None:
    """Raises InputError if a text, or one of a list, holds half a pair of surrogates."""
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


# Answers as records: what JSON says of what was found.


BEST = 5
"""So many labels of a class are told with their probabilities."""

_DIGITS = 6  # of probabilities: float32 has no more


def value_record(prediction: Prediction, target: str, best: int = BEST) -> dict[str, Any]:
    """Returns the predicted value of a target as JSON has it.

    Always its `value`; its `probability` where it has one; `probabilities` of the best labels, or,
    for tags, that of each word.

    Args:
      prediction: of an input.
      target: one of its targets.
      best: number of labels whose probabilities are written.
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
    tags: Sequence[str], words: Sequence[str], labels: Sequence[str]
) -> dict[str, Any]:
    """Returns what is told of tags beside them: their `words`, and the `spans` that they mark.

    Args:
      tags: that were found.
      words: that they are of.
      labels: all that there are; if they mark no spans, none are told.
    """
    record: dict[str, Any] = {"words": list(words)}
    if marks_spans(labels):
        record["spans"] = span_records(tags, words)
    return record


def prediction_record(
    prediction: Prediction, *, ids: bool = False, alignments: bool = False
) -> dict[str, Any]:
    """Returns an output as JSON has it: `value` and `score`, and of several hypotheses each.

    Args:
      prediction: what was found.
      ids: whether the `ids` are told, too.
      alignments: whether the `alignment` is: pairs of words' numbers, the input's first.
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
    """Returns what each word of an output looks at as JSON has it.

    The words that are `read` and `written`, and of each written one the `weights` of those read.
    """
    return {
        "read": list(attention.read),
        "written": list(attention.written),
        "weights": [[round(weight, _DIGITS) for weight in row] for row in attention.weights],
    }


def span_records(tags: Sequence[str], words: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the spans that tags mark: `kind`, `first` and `last` word, from 0, and `text`."""
    return [
        {
            "kind": span.kind,
            "first": span.first,
            "last": span.last,
            "text": " ".join(words[span.first : span.last + 1]),
        }
        for span in spans_of([tag or "O" for tag in tags])
    ]
