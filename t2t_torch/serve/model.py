"""A model as it is served: what it is asked, what it answers, and how that is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from t2t_torch.features.text import words_of
from t2t_torch.runtime.prediction import (
    BEST,
    Prediction,
    attention_record,
    prediction_record,
    value_record,
    words_record,
)
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.serve.limits import BAD_REQUEST, HTTPError

Sample: TypeAlias = Mapping[str, Any]
"""An input, by field."""

TEXTS = ("text", "tree")
"""Kinds of target that are answered with hypotheses."""

_LETTERS = 5  # of a word, about


@dataclass(frozen=True)
class InputField:
    """What an input consists of.

    Attributes:
      name: of the field.
      kind: "text"; "words" or "labels" of words, with spaces between or as a list; "numbers";
        "word_numbers", a list of numbers for each word; "gazetteer", for each word a mapping of
        labels to weights; "image", bytes in lists; "tensor", an array of a trial; or "value", of
        some other form, which the protocol's tensors do not have.
      size: how many numbers; 0 of all else.
      dtype: of an array.
      shape: of a picture, or of an array of one input; -1 is any size.
      of: of what has an entry for each word, the field of the words.
    """

    name: str
    kind: str
    size: int = 0
    dtype: str = ""
    shape: Sequence[int] = ()
    of: str = ""


@dataclass(frozen=True)
class OutputTarget:
    """What is answered.

    Attributes:
      name: of the target.
      kind: "class", "choice", "multilabel", "tags", "numbers", "distribution", "span", "tensor",
        "value", or one of `TEXTS`.
      labels: in the order of their scores; empty where there are none.
      of: of tags, the field of the words that they are of.
      size: of numbers, how many.
      dtype: of an array.
      shape: of an array of one answer; -1 is any size.
    """

    name: str
    kind: str
    labels: Sequence[str] = ()
    of: str = ""
    size: int = 0
    dtype: str = ""
    shape: Sequence[int] = ()


@dataclass(frozen=True)
class Nested:
    """How the nested inputs and outputs of a trial are read and told in JSON.

    Attributes:
      read: returns the arrays of an input by field, given its number and JSON; raises HTTPError.
      tell: returns what JSON says of an answer.
      fields: as which JSON has the inputs.
      targets: as which it has the outputs.
    """

    read: Callable[[int, Any], Sample]
    tell: Callable[[Any], dict[str, Any]]
    fields: Sequence[InputField]
    targets: Sequence[OutputTarget]


@dataclass(frozen=True)
class Model:
    """One version of a model, ready to answer.

    Attributes:
      name: what it is asked by.
      version: the same.
      problem: what it has learnt.
      learner: the registered name of what has learnt it.
      platform: what computes.
      fields: what an input consists of.
      targets: what is answered.
      ask: returns what is found for inputs, in their order, unless the `CancellationToken` is set
        meanwhile; called by one thread at a time, unless `is_shared`.
      examples: inputs to try.
      told: the parts of a first answer, by which its metadata say what there is; None if unknown.
      attend: returns what is found for inputs with the attention of its texts; called as `ask`
        is.  None if nothing tells it.
      why_no_attention: if so, why; ends a sentence.
      nested: of a trial, whose fields and targets are arrays.
      is_shared: whether several threads may ask at once.
    """

    name: str
    version: str
    problem: str
    learner: str
    platform: str
    fields: Sequence[InputField]
    targets: Sequence[OutputTarget]
    ask: Callable[[Sequence[Sample], CancellationToken], Sequence[Prediction]]
    examples: Sequence[Sample] = ()
    told: Prediction | None = None
    attend: Callable[[Sequence[Sample], CancellationToken], Sequence[Prediction]] | None = None
    why_no_attention: str = "it writes no text"
    nested: Nested | None = None
    is_shared: bool = False

    def check_attends(self) -> None:
        """Raises HTTPError if nothing tells what the model attends to."""
        if self.attend is None:
            raise HTTPError(
                BAD_REQUEST,
                f"attention: {self.name!r} tells none: {self.why_no_attention}. Leave it out.",
            )

    def sample(self, number: int, given: Any) -> Sample:
        """Returns an input of a request, by field.

        Args:
          number: of the input, from 0, for errors.
          given: a mapping by field; where there is one field, also its value alone.

        Raises:
          HTTPError: a field is missing.
        """
        if self.nested is not None:
            return self.nested.read(number, given)
        names = [field.name for field in self.fields]
        if not isinstance(given, dict):
            if len(names) == 1:
                return {names[0]: given}
            raise HTTPError(
                BAD_REQUEST,
                f"input {number} should be an object with the fields {', '.join(names)}.",
            )
        missing = [name for name in names if name not in given]
        if missing:
            raise HTTPError(
                BAD_REQUEST,
                f"input {number} has no {', '.join(missing)}; this model is asked with the fields "
                f"{', '.join(names)}.",
            )
        return {name: given[name] for name in names}

    def record(self, sample: Sample, found: Prediction, best: int = BEST) -> dict[str, Any]:
        """Returns what was found for an input, by target, as JSON has it.

        Args:
          sample: the input.
          found: what was found for it.
          best: labels of a class that are told.
        """
        if self.nested is not None:
            return self.nested.tell(found)
        if found.hypotheses:
            return {self.targets[0].name: _text_record(found)}
        return {target.name: _record(target, sample, found, best) for target in self.targets}


def _record(target: OutputTarget, sample: Sample, found: Prediction, best: int) -> dict[str, Any]:
    name = target.name
    record = value_record(found, name, best)
    if target.kind == "tags":
        record |= words_record(record["value"], words_of(sample[target.of]), target.labels)
    return record


def _text_record(found: Prediction) -> dict[str, Any]:
    record = prediction_record(found)
    if found.attention is not None:
        record["alignment"] = [list(pair) for pair in found.hypotheses[0].alignment]
        record["attention"] = attention_record(found.attention)
    return record


class Extent(NamedTuple):
    """How large an input is.

    Attributes:
      texts: all that are in it, those of lists and mappings, too.
      tokens: how long it is, about, in words: five letters, or what stands between spaces.  Letters
        count, since not all scripts have spaces between words.
    """

    texts: Sequence[str]
    tokens: int


def extent_of(sample: Sample, most: float = math.inf) -> Extent | None:
    """Returns how large an input is; each of its parts is looked at once.

    Args:
      sample: the input, by field.
      most: elements of all its lists and mappings; of an input with more, which is looked at no
        further, None is returned.
    """
    texts: list[str] = []
    tokens = 1
    for value in sample.values():
        if isinstance(value, str):
            texts.append(value)
            tokens = max(tokens, len(value.split()), len(value) // _LETTERS)
            continue
        parts, elements = _parts(value, most)
        if elements > most:
            return None
        most -= elements
        inner = [part for part in parts if isinstance(part, str)]
        texts += inner
        # What words have, or rows of a picture, counts once for each.
        nested = isinstance(value, list) and any(isinstance(one, list | Mapping) for one in value)
        count = len(value) if nested else len(parts)
        tokens = max(tokens, count, sum(map(len, inner)) // _LETTERS)
    return Extent(texts, tokens)


def texts_of(sample: Sample) -> Sequence[str]:
    """Returns the texts of an input, those of lists and mappings in it, too."""
    extent = extent_of(sample)
    assert extent is not None
    return extent.texts


def tokens_of(sample: Sample) -> int:
    """Returns how long an input is; see `Extent`."""
    extent = extent_of(sample)
    assert extent is not None
    return extent.tokens


def _parts(value: Any, most: float) -> tuple[list[Any], int]:
    """Returns all that is no list and no mapping in a value, in its order; keys, too.

    Not by a call for each level: a body may have more of them than Python allows calls.

    Args:
      value: with anything in it.
      most: elements of lists and mappings, behind which nothing more is found.

    Returns:
      What was found, and how many elements were seen.
    """
    found, left, seen = [], [value], 0
    while left:
        one = left.pop()
        inner: Sequence[Any]
        if isinstance(one, Mapping):
            inner = [part for pair in one.items() for part in pair]
        elif isinstance(one, list | tuple):
            inner = one
        else:
            found.append(one)
            continue
        seen += len(inner)
        if seen > most:
            break
        if any(issubclass(kind, list | tuple | Mapping) for kind in set(map(type, inner))):
            left += reversed(inner)
        else:  # most lists, and many times as fast
            found += inner
    return found, seen
