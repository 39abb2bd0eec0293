"""Class labels as ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.text.lines import read_lines


class ClassLabelEncoder:
    """Labels by their place in a list, from 0: a class is no sequence, so no id is reserved.

    Source: tensor2tensor's `ClassLabelEncoder`, whose decoding took 0 and 1 for PAD and EOS.

    Args:
      labels: the names of the classes.

    Raises:
      DataError: a label is there twice.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._ids = {label: i for i, label in enumerate(self.labels)}
        if len(self._ids) != len(self.labels):
            twice = Counter(labels).most_common(1)[0][0]
            raise DataError(f"The label {twice!r} is there twice. Remove one of them.")

    @classmethod
    def load(cls, path: Path) -> ClassLabelEncoder:
        """Reads a file of labels, one a line; DataError if it is missing or not UTF-8."""
        return cls(list(read_lines(path)))

    @property
    def vocab_size(self) -> int:
        """The number of classes."""
        return len(self.labels)

    def encode(self, label: str, *, allow_unknown: bool = False) -> int:
        """Returns the id of a label, in [0, vocab_size).

        Args:
          label: its name.
          allow_unknown: whether -1 is the id of all other labels.

        Raises:
          DataError: there is no such label.
        """
        identity = self._ids.get(label, -1)
        if identity < 0 and not allow_unknown:
            raise DataError(f"{label!r} is no label; the labels are {list(self.labels)}.")
        return identity

    def decode(self, identity: int) -> str:
        """Returns the label of an id; DataError if there is no such class."""
        if not 0 <= identity < len(self.labels):
            raise DataError(f"{identity} is no class; the classes are 0 to {len(self.labels) - 1}.")
        return self.labels[identity]
