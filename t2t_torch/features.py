"""What data is: the kinds of value that an example consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from t2t_torch.errors import UsageError
from t2t_torch.text.encoder import EOS, TextEncoder


class Feature(ABC):
    """One value of an example: how it becomes ids, is stored, and becomes a value again.

    How a feature enters and leaves a network is its modality's business.
    """

    @property
    @abstractmethod
    def arrow_type(self) -> str:
        """The Arrow type of the feature's column in the shards."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of different ids."""

    @abstractmethod
    def encode(self, value: Any) -> list[int]:
        """Returns the ids of a raw value; DataError if it has none."""

    @abstractmethod
    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of many raw values, each as `encode` would."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> Any:
        """Returns the raw value of ids, padded or not."""


@dataclass(frozen=True)
class Text(Feature):
    """A text, as a sequence of ids.

    Attributes:
      encoder: between the text and ids.
      add_eos: whether `EOS` follows the text's ids.
    """

    encoder: TextEncoder
    add_eos: bool = True

    @property
    def arrow_type(self) -> str:
        """A list of 32-bit integers."""
        return "list<int32>"

    @property
    def vocab_size(self) -> int:
        """The encoder's."""
        return self.encoder.vocab_size

    def encode(self, value: str) -> list[int]:
        """Returns the ids of a text, and `EOS` if `add_eos`."""
        return self.encode_batch([value])[0]

    def encode_batch(self, values: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, and `EOS` after each if `add_eos`."""
        batch = self.encoder.encode_batch(values)
        if self.add_eos:
            for ids in batch:
                ids.append(EOS)
        return batch

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text before the first `EOS`, `PAD` skipped."""
        return self.encoder.decode(ids)


@dataclass(frozen=True)
class Features:
    """What an example consists of.

    Attributes:
      inputs: by name, what the model is given; empty for a language model.
      targets: by name, what the model has to produce.
      stored_as: by name, the column of the shards that holds a feature, where its name differs.
    """

    inputs: Mapping[str, Feature]
    targets: Mapping[str, Feature]
    stored_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, Feature]:
        """All features by name, inputs first."""
        return {**self.inputs, **self.targets}

    @property
    def columns(self) -> dict[str, str]:
        """For each feature, the column of the shards that holds it."""
        return {name: self.stored_as.get(name, name) for name in self.all}

    @property
    def has_inputs(self) -> bool:
        """False for a language model."""
        return bool(self.inputs)

    def reversed(self) -> Features:
        """Returns these features with "inputs" and "targets" exchanged; other features stay.

        Raises:
          UsageError: one of the two is missing.
        """
        self._require_pair("_rev exchanges")
        columns = self.columns
        return Features(
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
        if "inputs" not in self.inputs or "targets" not in self.targets:
            raise UsageError(
                f"{what} 'inputs' and 'targets', but this problem's inputs are "
                f"{list(self.inputs)} and its targets {list(self.targets)}. "
                "Name the problem without the suffix."
            )
