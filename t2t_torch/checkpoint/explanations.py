"""What a checkpoint holds besides numbers, so that it explains itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from t2t_torch.data.manifest import sha256_of

_COPIES = ("task.json", "hparams.json", "experiment.json", "config.json")
_VOCABULARIES = ("vocab.*", "labels.*", "moments.*")  # as problems name them


@dataclasses.dataclass(frozen=True)
class Explanations:
    """What a checkpoint says of the run that it is of.

    Attributes:
      copies: files that explain it, by name.
      vocabularies: the sha256 of each, by name.
    """

    copies: Mapping[str, bytes]
    vocabularies: Mapping[str, str]

    @classmethod
    def of(cls, run: Path) -> Explanations:
        """Reads those of a run directory."""
        files = [run / name for name in _COPIES]
        copies = {file.name: file.read_bytes() for file in files if file.exists()}
        found = [file for pattern in _VOCABULARIES for file in sorted(run.glob(pattern))]
        return cls(copies, {file.name: sha256_of(file) for file in found})
