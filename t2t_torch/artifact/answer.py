"""What is asked and answered, whatever answers: a run's model or an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from t2t_torch.errors import DataError, DecodeError

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


def ranked(labels: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Returns the score of each label, the greatest first; of equals the first label's."""
    return dict(sorted(zip(labels, scores, strict=True), key=lambda one: -one[1]))
