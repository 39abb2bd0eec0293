"""Contract: one value of an example, and all of them together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import UsageError

Role: TypeAlias = Literal["inputs", "targets", "notes", "kept"]
"""What a feature is to a model: given, produced, only known of the example, or only stored."""

UNKNOWN = -1
"""The id of a label that training does not know: never right, and without a loss."""

IGNORED = -100
"""What fills up sequences of labels, whose ids start at 0: it counts for nothing."""


class Feature(ABC):
    """One value of an example: how it becomes numbers, is stored, and becomes a value again.

    An example's numbers are stored as one flat list; `shape` says how they lie in a batch.  How a
    feature enters and leaves a network is its modality's business.
    """

    @property
    @abstractmethod
    def arrow_type(self) -> str:
        """The Arrow type of the feature's column in the shards, a list of numbers."""

    @property
    def vocab_size(self) -> int:
        """The number of different ids; 0 where the numbers are no ids."""
        return 0

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Of one example in a batch; None, which only the first may be, is as long as it takes."""
        return (None,)

    @property
    def padding(self) -> int:
        """What fills up shorter examples of a batch."""
        return 0

    @property
    def lowest_id(self) -> int:
        """The lowest id that `encode` gives."""
        return 0

    @property
    def source(self) -> str | None:
        """The field of a sample that it is made from; None is the one of the feature's name."""
        return None

    @property
    def aligned_to(self) -> str | None:
        """The feature of words that it has one entry for each word of, if it has."""
        return None

    @property
    def generates(self) -> bool:
        """Whether a model produces it id after id, ended by `EOS`; true of texts."""
        return False

    @property
    def is_sequence(self) -> bool:
        """Whether examples differ in length."""
        return self.shape[:1] == (None,)

    def lengths(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns positions from counts of stored numbers; what is no sequence has one.  [N]."""
        if not self.is_sequence:
            return np.ones_like(stored)
        width = math.prod(size or 1 for size in self.shape[1:])
        return stored // width if width > 1 else stored

    @abstractmethod
    def encode(self, value: Any) -> Sequence[Any]:
        """Returns the numbers of a raw value, flat; DataError if it has none."""

    def encode_batch(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the numbers of many raw values, each as `encode` would."""
        return [self.encode(value) for value in values]

    @abstractmethod
    def decode(self, ids: Iterable[Any]) -> Any:
        """Returns the raw value of numbers, padded or not."""


@dataclass(frozen=True)
class Features:
    """What an example consists of.

    Attributes:
      inputs: by name, what the model is given; empty for a language model.
      targets: by name, what the model has to produce.
      stored_as: by name, the column of the shards that holds a feature, where its name differs.
      notes: by name, what is known of an example beside: its weight, where its words begin.  They
        are in every batch as they are; nothing is embedded.
      losses: by target, the registered loss that the problem asks for.
      kept: by name, what is stored in the shards for decoding, and is in no batch.
    """

    inputs: Mapping[str, Feature]
    targets: Mapping[str, Feature]
    stored_as: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Feature] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Feature] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, Feature]:
        """All features by name: inputs, targets, notes."""
        return {**self.inputs, **self.targets, **self.notes}

    @property
    def stored(self) -> dict[str, Feature]:
        """All features of the shards, by name: those of batches and those that are only kept."""
        return {**self.all, **self.kept}

    @property
    def given(self) -> dict[str, Feature]:
        """What a model is given to answer from: the inputs, and the notes on their words."""
        of_words = {name: note for name, note in self.notes.items() if note.aligned_to is not None}
        return {**self.inputs, **of_words}

    def role(self, name: str) -> Role:
        """Returns which of the four a feature is among."""
        if name in self.inputs:
            return "inputs"
        if name in self.kept:
            return "kept"
        return "targets" if name in self.targets else "notes"

    @property
    def columns(self) -> dict[str, str]:
        """For each feature, the column of the shards that holds it."""
        return {name: self.stored_as.get(name, name) for name in self.all}

    @property
    def sources(self) -> dict[str, str]:
        """For each feature, the field of a sample that it is made from."""
        return {name: feature.source or name for name, feature in self.all.items()}

    @property
    def has_inputs(self) -> bool:
        """False for a language model."""
        return bool(self.inputs)

    def reversed(self) -> Features:
        """Returns these features with "inputs" and "targets" exchanged; other features stay.

        Raises:
          UsageError: one of the two is missing, or no text.
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
        # What the notes tell is of one side; it would have to change sides too.
        if not all(feature and feature.generates for feature in pair) or self.notes:
            raise UsageError(
                f"{what} the texts 'inputs' and 'targets', but this problem's inputs are "
                f"{_told(self.inputs)} and its targets {_told(self.targets)}. "
                "Name the problem without the suffix."
            )


def _told(features: Mapping[str, Feature]) -> str:
    return ", ".join(f"{name} ({type(f).__name__})" for name, f in features.items()) or "none"
