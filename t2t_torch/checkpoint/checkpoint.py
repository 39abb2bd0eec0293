"""A checkpoint on disk: what is in it, and whether it is whole."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pydantic
import torch
from torch import nn

import t2t_torch
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.checkpoint.weights import load_optimizer, load_weights
from t2t_torch.data.manifest import sha256_of
from t2t_torch.errors import CheckpointError

MANIFEST = "MANIFEST.json"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
TRAINER = "trainer.json"


@dataclasses.dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
      step: optimizer steps done.
      path: its folder.
    """

    step: int
    path: Path

    def verify(self) -> None:
        """Compares every file with the manifest.

        Raises:
          CheckpointError: a file is missing, altered, truncated or cannot be read, or the folder
            was renamed.
        """
        try:
            manifest = json.loads((self.path / MANIFEST).read_bytes())
            files, step = manifest["files"], manifest["step"]
            missing = {MODEL, OPTIMIZER, TRAINER} - set(files)
            if missing:
                raise CheckpointError(f"{self.path}: {MANIFEST} does not list {sorted(missing)}")
            if step != self.step:
                raise CheckpointError(
                    f"{self.path} is the checkpoint of step {step}: rename it to ckpt-{step}"
                )
            for name, expected in files.items():
                self._verify_file(name, expected["bytes"], expected["sha256"])
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}: {Path(error.filename).name} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path}: {MANIFEST} is damaged: {error}") from error

    def _verify_file(self, name: str, size: int, sha256: str) -> None:
        file = self.path / name
        found = file.stat().st_size
        if found != size:
            raise CheckpointError(f"{file} has {found} bytes; expected {size}")
        if sha256_of(file) != sha256:
            raise CheckpointError(f"{file} was altered: its sha256 is not the manifest's")

    def trainer_state(self) -> TrainerState:
        """Reads `trainer.json`.

        Raises:
          CheckpointError: another version wrote it in another form, or it is damaged.
        """
        text = (self.path / TRAINER).read_bytes()
        try:
            return TrainerState.model_validate_json(text)
        except pydantic.ValidationError as error:
            try:
                version = json.loads(text)["version"]
            except (ValueError, KeyError, TypeError):
                version = "unknown"
            raise CheckpointError(
                f"{self.path / TRAINER}, written by t2t_torch {version}, cannot be read by this "
                f"t2t_torch {t2t_torch.__version__}: {error}. Use the version that wrote it."
            ) from error

    def load_model(self, model: nn.Module) -> None:
        """Loads weights and buffers into a model, on whatever device it is.

        Raises:
          CheckpointError: names or shapes differ.
        """
        load_weights(model, self.path / MODEL)

    def load_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Loads the optimizer's slots; its hyperparameters stay those of `hparams`.

        Raises:
          CheckpointError: the checkpoint is of another optimizer.
        """
        load_optimizer(optimizer, model, self.path / OPTIMIZER)
