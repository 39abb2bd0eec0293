"""What a checkpoint holds besides numbers, and the names of checkpoints.  Imports no torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from t2t_torch.data.manifest import sha256_of

_COPIES = ("task.json", "hparams.json", "experiment.json", "config.json")
_VOCABULARIES = ("vocab.*", "labels.*", "moments.*")  # as problems name them

_NAME = re.compile(r"ckpt-(0|[1-9][0-9]*)")
_ASIDE = re.compile(r"ckpt-[0-9]+\.corrupt(-[0-9]+)?")
_LEFTOVER = re.compile(r"ckpt-[0-9]+\.(tmp-[0-9]+|removed(-[0-9]+)?)")


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


def step_of(path: Path) -> int | None:
    """Returns the step of a folder `ckpt-<step>`; None for any other name or a file."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match and path.is_dir() else None


def checkpoint_folders(run: Path) -> dict[int, Path]:
    """Returns the checkpoint folders of a run by step, oldest first, whole or not.

    Unfinished saves (`ckpt-100.tmp-PID`) and folders that were set aside are not among them.
    """
    steps = {step: path for path in run.glob("ckpt-*") if (step := step_of(path)) is not None}
    return dict(sorted(steps.items()))


def folders_set_aside(run: Path) -> list[Path]:
    """Returns the broken checkpoints that were renamed to `ckpt-<step>.corrupt`."""
    return [path for path in run.glob("ckpt-*") if _ASIDE.fullmatch(path.name)]


def unfinished_folders(run: Path) -> list[Path]:
    """Returns what killed saves and deletions of checkpoints have left behind."""
    return [path for path in run.glob("ckpt-*") if _LEFTOVER.fullmatch(path.name)]
