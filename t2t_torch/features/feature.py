"""Interface of features: one value of an example, and the set of all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import UsageError
from t2t_torch.overrides import FEATURE, refuse_overrides

Role: TypeAlias = Literal["inputs", "targets", "notes", "kept"]
"""What a feature is to a model: given, produced, only known of the example, or only stored."""

UNKNOWN = -1
"""The id of a label that training does not know: never right, and without a loss."""

IGNORED = -100
"""What fills up sequences of labels, whose ids start at 0: it counts for nothing."""


InputKind: TypeAlias = Literal[
    "text",
    "words",
    "labels",
    "numbers",
    "word_numbers",
    "gazetteer",
    "image",
    "audio",
    "tensor",
    "value",
]
"""The form of an input in JSON: a text; words, as a list or separated by spaces; a label for each
word, likewise; a list of numbers; a list of numbers for each word; for each word a mapping of
labels to weights; an image as nested lists; a sound as a wav file in base64, or a list of samples;
an array of a trial; any other JSON value."""

OutputKind: TypeAlias = Literal[
    "class",
    "multilabel",
    "tags",
    "numbers",
    "distribution",
    "choice",
    "span",
    "text",
    "tree",
    "tensor",
    "value",
]
"""The form of an output in JSON; "value" is any JSON value, such as a date as a string."""


@dataclass(frozen=True)
class InputSpec:
    """Specification of an input field.

    The kinds are a closed set, which clients in any language can implement.  A new kind of feature
    maps to one of them with `Feature.input_spec`.

    Attributes:
      name: name of the field, and of the input of an exported graph.
      kind: form of a value.
      dtype: element type of the graph's input: "string" [batch]; "float32" [batch, size] for
        numbers; for numbers of words "float32" [batch, words, size]; for a gazetteer "string"
        [batch, words, entries], with the weights in a second input, `<name>_weights`, float64; for
        an image "uint8" [batch, height, width, channels]; for a sound "int16" [batch, samples],
        -32768 after the end; for a tensor its own.
      size: number of numbers; the sampling rate of a sound; 0 for strings.
      of: for values with an entry for each word, the field of the words.
      longest: number of words or tokens at which the input is truncated, or, if `tagged`, above
        which it is an error; 0: no limit.
      tagged: True if a target has a tag for each word of the field.
      shape: shape of an image, or of a tensor without the batch axis; -1 is any size.
      tokenizer: regular expression of a word by which a text that is given in place of a list of
        words is split (`text/tokenizer.py`); "": texts are split at spaces.
    """

    name: str
    kind: InputKind
    dtype: str = "string"
    size: int = 0
    of: str = ""
    longest: int = 0
    tagged: bool = False
    shape: Sequence[int] = ()
    tokenizer: str = ""


@dataclass(frozen=True)
class OutputSpec:
    """Specification of a target.

    The outputs of an exported graph are `<name>`, and `<name>_probability` and `<name>_scores`
    where they exist; for a span also `<name>_span`.

    Attributes:
      name: name of the target.
      kind: form of a value.
      labels: labels in the order of the scores; empty for kinds without labels.
      of: for tags and spans, the field of the words or of the text.
      size: number of numbers, or of hypotheses of a text.
      dtype: element type of a tensor.
      shape: shape of a tensor without the batch axis; -1 is any size.
    """

    name: str
    kind: OutputKind
    labels: Sequence[str] = ()
    of: str = ""
    size: int = 0
    dtype: str = ""
    shape: Sequence[int] = ()


Row: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""The stored numbers of an example, by feature."""


class Feature(ABC):
    """Base class of features: conversion of a value to numbers and back, formats, statistics.

    The numbers of an example are stored as one flat list; `shape` is their layout in a batch.  The
    modality of a feature embeds and predicts them.

    A new kind of feature is a subclass with `arrow_type`, `encode` and `decode`, and a modality.
    The other methods have defaults; see docs/how_to/add_a_feature.md.

    Attributes:
      is_text: True if the numbers are ids of a text vocabulary, each with an embedding.
      classifies: True if each item is exactly one of `labels`.
      starts_words: True if it holds the position of each word's first id.
      produced_like: type of target with the same hidden states, for models that list the types
        that they produce; None is the class itself.
      output_kind: form of a predicted value.
      allow_unknown: True if `encode` returns `UNKNOWN` for a label that training does not know.
    """

    is_text: ClassVar[bool] = False
    classifies: ClassVar[bool] = False
    starts_words: ClassVar[bool] = False
    produced_like: ClassVar[type[Feature] | None] = None
    output_kind: ClassVar[OutputKind] = "value"
    allow_unknown: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, Feature, FEATURE)

    @property
    @abstractmethod
    def arrow_type(self) -> str:
        """Arrow type of the column in the shards, a list of numbers."""

    @property
    def vocab_size(self) -> int:
        """Number of ids; 0 if the numbers are not ids."""
        return 0

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one example in a batch; only the first size may be None, for any length."""
        return (None,)

    @property
    def padding(self) -> int:
        """Padding value of shorter examples in a batch."""
        return 0

    @property
    def source(self) -> str | None:
        """Source field of a sample; None: the field with the name of the feature."""
        return None

    @property
    def aligned_to(self) -> str | None:
        """Name of the word feature, if this one has an entry for each of its words; else None."""
        return None

    @property
    def refers_to(self) -> str | None:
        """Name of the feature whose words a value refers to: tagged words, or those of a span."""
        return self.aligned_to

    @property
    def generates(self) -> bool:
        """True if a model generates it id by id until `EOS`, as for texts."""
        return False

    @property
    def is_sequence(self) -> bool:
        """True if examples differ in length."""
        return self.shape[:1] == (None,)

    @abstractmethod
    def encode(self, value: Any) -> Sequence[Any]:
        """Returns the numbers of a value, as a flat list.

        The value is in its JSON form, or as returned by `decode`.

        Raises:
          DataError: the value is invalid.
        """

    def encode_batch(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the numbers of many values; the same as `encode` for each."""
        return [self.encode(value) for value in values]

    @abstractmethod
    def decode(self, ids: Iterable[Any]) -> Any:
        """Returns the value of numbers, padded or not, in its JSON form."""

    # Specification, for artifacts, servers and documentation.

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the ids, or of the numbers of a row, in their order; empty if none."""
        return ()

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the specification of an input field of this feature.

        Args:
          name: name of the field.
          features: features of the problem.
        """
        return InputSpec(name, "value")

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the specification of a target of this feature.

        Args:
          name: name of the target.
          features: features of the problem.
        """
        of = self.refers_to
        source = features.sources.get(of, of) if of else ""
        return OutputSpec(name, self.output_kind, self.labels, source)

    def example(self, *, as_list: bool) -> Any:
        """Returns a value for documentation and error messages.

        Args:
          as_list: True to return a text as a list of two words.
        """
        return ["..."]


class ExampleChange(ABC):
    """A change of examples when they are read, which depends on the features."""

    @abstractmethod
    def of(self, features: Features) -> Callable[..., Mapping[str, Any]]:
        """Returns the function that is called as `Problem.preprocess_example`."""


def count_positions(feature: Feature, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Converts counts of stored numbers to counts of positions; 1 if not a sequence.  [N]."""
    if not feature.is_sequence:
        return np.ones_like(stored)
    width = math.prod(size or 1 for size in feature.shape[1:])
    return stored // width if width > 1 else stored


def select_texts(features: Mapping[str, Feature]) -> dict[str, Any]:
    """Returns the features whose numbers are ids of a text vocabulary."""
    return {name: feature for name, feature in features.items() if feature.is_text}


def select_generated(features: Mapping[str, Feature]) -> dict[str, Any]:
    """Returns the features that a model generates id by id until `EOS`."""
    return {name: feature for name, feature in features.items() if feature.generates}


def select_labels(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the features of which each item is exactly one label: classes and tags."""
    return {name: feature for name, feature in features.items() if feature.classifies}


def select_classes(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the features of which an example is exactly one of `labels`."""
    sequences = select_sequences(features)
    return {name: one for name, one in select_labels(features).items() if name not in sequences}


def select_sequences(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the features whose examples differ in length."""
    return {name: feature for name, feature in features.items() if feature.is_sequence}


def select_measured(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the sequences with a length of their own.

    Features aligned to the words of another are never longer than that and are truncated with it.
    """
    return {
        name: feature
        for name, feature in select_sequences(features).items()
        if feature.aligned_to not in features
    }


def find_alignments(features: Mapping[str, Feature]) -> dict[str, str]:
    """Returns, by feature with an entry for each word, the name of the word feature."""
    return {
        name: feature.aligned_to
        for name, feature in features.items()
        if feature.aligned_to is not None
    }


def find_word_starts(features: Mapping[str, Feature]) -> dict[str, str]:
    """Returns, by text with several ids per word, the name of its `WordStarts`."""
    words = find_alignments(features)
    return {of: name for name, of in words.items() if features[name].starts_words}


@dataclass(frozen=True)
class Features:
    """The features of a problem.

    Attributes:
      inputs: inputs of the model by name; empty for a language model.
      targets: targets of the model by name.
      stored_as: columns in the shards by feature name, where the names differ.
      notes: annotations of an example by name, such as its weight or the starts of its words.  They
        are in every batch but are not embedded.
      losses: registered losses by target, as chosen by the problem.
      kept: features by name that are stored for decoding only and are in no batch.
      input_space_id: tensor2tensor's SpaceID of the inputs.
      target_space_id: tensor2tensor's SpaceID of the targets.
    """

    inputs: Mapping[str, Feature]
    targets: Mapping[str, Feature]
    stored_as: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Feature] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Feature] = field(default_factory=dict)
    input_space_id: int = 0
    target_space_id: int = 0

    @property
    def all(self) -> dict[str, Feature]:
        """Returns all features by name: inputs, targets, annotations."""
        return {**self.inputs, **self.targets, **self.notes}

    @property
    def stored(self) -> dict[str, Feature]:
        """Returns all features of the shards by name: those of batches and `kept`."""
        return {**self.all, **self.kept}

    @property
    def given(self) -> dict[str, Feature]:
        """Returns the features for inference: the inputs and the annotations of their words."""
        return {**self.inputs, **{name: self.notes[name] for name in find_alignments(self.notes)}}

    @property
    def word_starts(self) -> dict[str, str]:
        """Returns, by text with several ids per word, the name of its `WordStarts`."""
        return find_word_starts(self.notes)

    def role(self, name: str) -> Role:
        """Returns the role of a feature."""
        if name in self.inputs:
            return "inputs"
        if name in self.kept:
            return "kept"
        return "targets" if name in self.targets else "notes"

    @property
    def columns(self) -> dict[str, str]:
        """Returns the column in the shards of each feature."""
        return {name: self.stored_as.get(name, name) for name in self.all}

    @property
    def sources(self) -> dict[str, str]:
        """Returns the source field of a sample of each feature."""
        return {name: feature.source or name for name, feature in self.all.items()}

    @property
    def has_inputs(self) -> bool:
        """False for a language model."""
        return bool(self.inputs)

    @property
    def is_generative(self) -> bool:
        """True if a model generates all targets id by id."""
        return len(select_generated(self.targets)) == len(self.targets)

    def reversed(self) -> Features:
        """Returns these features with "inputs" and "targets" exchanged; other features stay.

        Raises:
          UsageError: one of the two is missing or not a text.
        """
        self._require_pair("_rev exchanges")
        columns = self.columns
        return replace(
            self,
            inputs={**self.inputs, "inputs": self.targets["targets"]},
            targets={**self.targets, "targets": self.inputs["inputs"]},
            stored_as={**columns, "inputs": columns["targets"], "targets": columns["inputs"]},
        )

    def copied(self) -> Features:
        """Returns these features with "inputs" as the "targets" too.

        Raises:
          UsageError: one of the two is missing.
        """
        self._require_pair("_copy makes one of")
        columns = self.columns
        return replace(
            self,
            targets={**self.targets, "targets": self.inputs["inputs"]},
            stored_as={**columns, "targets": columns["inputs"]},
        )

    def _require_pair(self, what: str) -> None:
        pair = self.inputs.get("inputs"), self.targets.get("targets")
        # Annotations refer to one side and would have to be exchanged too.
        if not all(feature and feature.generates for feature in pair) or self.notes:
            raise UsageError(
                f"{what} the texts 'inputs' and 'targets', but this problem's inputs are "
                f"{_format_features(self.inputs)} and its targets "
                f"{_format_features(self.targets)}. Name the problem without the suffix."
            )


def _format_features(features: Mapping[str, Feature]) -> str:
    return ", ".join(f"{name} ({type(f).__name__})" for name, f in features.items()) or "none"
