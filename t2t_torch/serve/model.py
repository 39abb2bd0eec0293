"""A served model: its inputs, its predictions and their JSON."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import Audio, InputSpec, OutputSpec, audio, image, picture
from t2t_torch.runtime.feeds import words_of_array
from t2t_torch.runtime.prediction import (
    BEST,
    InputColumns,
    InputError,
    Prediction,
    attention_record,
    prediction_record,
    value_record,
    words_record,
)
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.serve.limits import MAX_FRAMES, MAX_PIXELS, BadRequest, ServerLimits

Sample: TypeAlias = Mapping[str, Any]
"""An input, by field."""

TEXTS = ("text", "tree")
"""Kinds of targets whose predictions have hypotheses."""

_LETTERS = 5  # approximate characters per word


@dataclass(eq=False, repr=False)
class ServedModel(ABC):
    """One served version of a model: an artifact, a run or a trial.

    Args:
      name: name in requests.
      version: version in requests.
      problem: name of the problem or trial.
      architecture: registered name of the model.
      platform: name of the inference engine.
      fields: fields of an input.
      targets: targets of a prediction.
      examples: example inputs.
      column_names: by field or target, the user's name for it.
      column_forms: by field, how its columns are read; see `InputColumns`.

    Attributes:
      is_shared: True if several threads may call `predict` concurrently.
      first: first prediction, used to list the outputs in the metadata; None if unknown.
      why_no_attention: reason why the model has no attention, the end of an error message; "" if
        it has attention.
    """

    name: str
    version: str
    problem: str
    architecture: str
    platform: str
    fields: Sequence[InputSpec]
    targets: Sequence[OutputSpec]
    examples: Sequence[Any] = ()
    column_names: Mapping[str, str] = field(default_factory=dict)
    column_forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first: Prediction | None = field(default=None, init=False)
    is_shared: ClassVar[bool] = False
    why_no_attention = "it writes no text"

    @abstractmethod
    def predict(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """Returns the predictions for samples in order.

        Called by one thread at a time, unless `is_shared`.

        Raises:
          InputError: a sample cannot be encoded.
          Stopped: the token was set.
        """

    def attend(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """Returns the predictions with their attention, unless `why_no_attention`."""
        raise NotImplementedError

    @property
    def json_fields(self) -> Sequence[InputSpec]:
        """The fields of an input in JSON."""
        return self.fields

    @property
    def json_targets(self) -> Sequence[OutputSpec]:
        """The targets of a prediction in JSON."""
        return self.targets

    def check_attends(self) -> None:
        """Raises HTTPError if the model has no attention."""
        if self.why_no_attention:
            raise BadRequest(
                f"attention: {self.name!r} has none: {self.why_no_attention}. Leave it out."
            )

    def sample(self, number: int, value: Any) -> Sample:
        """Returns an input of a request, by field.

        Args:
          number: index of the input, for error messages.
          value: a mapping by field, or by the user's names; for a single field also its plain
            value.

        Raises:
          HTTPError: a field is missing.
        """
        kinds = {field.name: field.kind for field in self.fields}
        columns = InputColumns(self.problem, kinds, self.column_names, self.column_forms)
        try:
            whole = columns.whole_sample(number, value)
        except (DecodeError, InputError) as error:
            raise BadRequest(str(error)) from None
        return {name: whole[name] for name in kinds}

    def record(self, sample: Sample, prediction: Prediction, best: int = BEST) -> dict[str, Any]:
        """Returns a prediction as JSON, by target.

        Args:
          sample: the input.
          prediction: the prediction.
          best: number of labels of a class to list.
        """
        if prediction.hypotheses:
            record = prediction_record(prediction)
            if prediction.attention is not None:
                record["alignment"] = [list(pair) for pair in prediction.hypotheses[0].alignment]
                record["attention"] = attention_record(prediction.attention)
            return {self.targets[0].name: record}
        tokenizers = {field.name: field.tokenizer for field in self.fields}
        records = {}
        for target in self.targets:
            record = records[target.name] = value_record(prediction, target.name, best)
            if target.kind == "tags":
                words, tokenizer = sample[target.of], tokenizers.get(target.of, "")
                record |= words_record(record["value"], words, target.labels, tokenizer)
        return records


FILES = {"image": "picture", "audio": "sound"}
"""Kinds of fields whose values may be files in base64, and what those are."""


def has_files(model: ServedModel, samples: Sequence[Sample]) -> bool:
    """Returns True if inputs have files in base64."""
    names = [field.name for field in model.fields if field.kind in FILES]
    return any(isinstance(sample[name], str) for sample in samples for name in names)


def open_files(
    model: ServedModel, samples: Sequence[Sample], limits: ServerLimits, token: CancellationToken
) -> list[Sample]:
    """Returns the inputs of a request with pictures and waveforms in place of files in base64.

    Args:
      model: model of the request.
      samples: inputs.
      limits: limits of all files of the request together; checked before a file is decoded.
      token: cancellation token, checked before each file.

    Raises:
      InputError: a file is damaged or over the limits.
      Stopped: the token was set.
    """
    most = {"image": limits.pixels, "audio": limits.samples}
    left = dict(most)

    def spend(kind: str, amount: int) -> None:
        left[kind] -= amount
        if left[kind] < 0:
            parts = "pixels" if kind == "image" else "samples"
            raise DataError(
                f"the {FILES[kind]}s of this request have more than {most[kind]:,} {parts} "
                "together. Put them into several requests."
            )

    pictures = picture.PictureLimits(MAX_PIXELS, spend=functools.partial(spend, "image"))
    sounds = audio.SoundLimits(MAX_FRAMES, spend=functools.partial(spend, "audio"))
    opened: list[Mapping[str, Any]] = []
    for number, sample in enumerate(samples):
        values = dict(sample)
        for spec in model.fields:
            value = sample[spec.name]
            if spec.kind not in FILES or not isinstance(value, str):
                continue
            token.check()
            try:
                if spec.kind == "image":
                    values[spec.name] = image.pixels_of(value, spec.shape, pictures)
                else:
                    seconds = limits.sound_seconds(spec.size)
                    values[spec.name] = Audio(spec.size, resample=True).samples_of(
                        value, dataclasses.replace(sounds, seconds=seconds)
                    )
            except DataError as error:
                raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        opened.append(values)
    return opened


class Extent(NamedTuple):
    """Size of an input.

    Attributes:
      texts: all texts of the input, including those in lists and mappings.
      tokens: approximate length in words: text between spaces, or five characters, because not all
        scripts separate words with spaces.
    """

    texts: Sequence[str]
    tokens: int


class TooManyElements(Exception):
    """The lists and mappings of an input have too many elements."""


def extent_of(sample: Sample, most: float = math.inf) -> Extent:
    """Returns the size of an input in one pass over its parts.

    Args:
      sample: input by field.
      most: maximum number of elements of all its lists and mappings.

    Raises:
      TooManyElements: there are more; the pass stops there.
    """
    texts: list[str] = []
    tokens = 1
    for value in sample.values():
        if isinstance(value, str):
            texts.append(value)
            tokens = max(tokens, len(value.split()), len(value) // _LETTERS)
            continue
        if isinstance(value, np.ndarray):
            tokens = max(tokens, words_of_array(value))
            continue
        parts, elements = _parts(value, most)
        if elements > most:
            raise TooManyElements
        most -= elements
        inner = [part for part in parts if isinstance(part, str)]
        texts += inner
        # Each entry of a word and each row of a picture counts as one.
        nested = isinstance(value, list) and any(isinstance(one, list | Mapping) for one in value)
        count = len(value) if nested else len(parts)
        tokens = max(tokens, count, sum(map(len, inner)) // _LETTERS)
    return Extent(texts, tokens)


def _parts(value: Any, most: float) -> tuple[list[Any], int]:
    """Returns the leaves of a nested value in order, including keys.

    It is not recursive, because a body may be nested deeper than Python's recursion limit.

    Args:
      value: nested value.
      most: maximum number of elements of lists and mappings, after which the traversal stops.

    Returns:
      The leaves, and the number of visited elements.
    """
    leaves, left, seen = [], [value], 0
    while left:
        one = left.pop()
        inner: Sequence[Any]
        if isinstance(one, Mapping):
            inner = [part for pair in one.items() for part in pair]
        elif isinstance(one, list | tuple):
            inner = one
        else:
            leaves.append(one)
            continue
        seen += len(inner)
        if seen > most:
            break
        if any(issubclass(kind, list | tuple | Mapping) for kind in set(map(type, inner))):
            left += reversed(inner)
        else:  # most lists, and much faster
            leaves += inner
    return leaves, seen
