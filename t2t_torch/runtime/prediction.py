"""What was found for an input that is answered with a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
    """What was found for one input.

    Attributes:
      hypotheses: at least one, best first; more than one only with `return_beams`, or where
        `num_decodes` are drawn, in the order of their numbers.
      attention: of the best hypothesis, where it was asked for.
    """

    hypotheses: tuple[Hypothesis, ...]
    attention: Attention | None = None

    @property
    def value(self) -> str:
        """The best hypothesis's text, by the name that an `Answer` has for what was found."""
        return self.text

    @property
    def text(self) -> str:
        """The best hypothesis's text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best hypothesis's score."""
        return self.hypotheses[0].score


# What is asked and answered, whatever answers: a run's model or an artifact.


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
class Answer:
    """What was found for one input.

    Attributes:
      values: by target: a label, a list of tags, numbers, a part of a text.
      probabilities: by target, of the value; of those that have one.
      scores: by target, the probability of each label, the likeliest first; of tags, that of each
        word's tag; of those that have them.
    """

    values: Mapping[str, Any]
    probabilities: Mapping[str, float]
    scores: Mapping[str, Mapping[str, float] | Sequence[float]] = field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The value of the only target, or all of them by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)


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


def value_record(
    value: Any,
    probability: float | None,
    scores: Mapping[str, float] | Sequence[float] | None,
    best: int = BEST,
) -> dict[str, Any]:
    """Returns what was found for a target as JSON has it.

    Always its `value`, and its `probability` where it has one; `probabilities` of the best labels,
    or of tags each word's.

    Args:
      value: that was found.
      probability: of the value; None where there is none.
      scores: of each label, the likeliest first, or of each word's tag; None where there are none.
      best: labels of a class that are told.
    """
    record: dict[str, Any] = {"value": value}
    if probability is not None:
        record["probability"] = round(probability, _DIGITS)
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
