"""A run of a trial with its code, its data and its model: what exports and evaluations need."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from t2t_torch.compute.distributed import World
from t2t_torch.train.first_weights import new_model
from t2t_torch.train.run_config import DEFAULT_SEED
from t2t_torch.train.run_directory import RunDirectory
from t2t_torch.trial import context
from t2t_torch.trial.checkpoint_choice import Chosen
from t2t_torch.trial.experiment_config import ExperimentConfig
from t2t_torch.trial.predictor import load_weights, place_of_code
from t2t_torch.trial.preparation import prepare
from t2t_torch.trial.run_record import NAME, RunRecord
from t2t_torch.trial.task import TrialTask
from t2t_torch.trust import import_usr_dirs

_DOWNLOAD_SECONDS = 3600.0  # that other processes wait for `download_data`


@dataclasses.dataclass(frozen=True)
class OpenedRun:
    """A run of a trial.

    Attributes:
      directory: of the run.
      spec: where the code was found.
      task: of the trial, with its loaders.
      model: as the trial builds it, in evaluation; the weights are those of `load`.
      device: where it computes.
    """

    directory: RunDirectory
    spec: str
    task: TrialTask
    model: nn.Module
    device: torch.device

    @classmethod
    def of(cls, path: str | Path, world: World) -> OpenedRun:
        """Imports a run's code, fetches its data and builds its model.

        Args:
          path: the run directory.
          world: the processes that open it.

        Raises:
          CheckpointError: this is no run directory.
          TrialError: the code or the data are gone or broken.
        """
        directory, spec, task = open_task(path, world)
        model = new_model(task, world.device).eval()
        return cls(directory, spec, task, model, world.device)

    def load(self, checkpoint: int | str | Path | None) -> Chosen:
        """Loads the weights of a checkpoint; see `predictor.load_trial`."""
        return load_weights(self.model, self.directory, checkpoint, self.spec)


def open_task(path: str | Path, world: World) -> tuple[RunDirectory, str, TrialTask]:
    """Imports a run's code and fetches its data; returns also the place of the code.

    Args:
      path: the run directory.
      world: the processes that open it.

    Raises:
      CheckpointError: this is no run directory.
      TrialError: the code or the data are gone or broken.
      UsageError: code comes with the run, which is not trusted.
    """
    directory = RunDirectory(path)
    import_usr_dirs(directory.path, directory.task().usr_dirs)
    record = RunRecord.read(directory.path)
    config = ExperimentConfig.from_dict(record.config, source=str(directory.path / NAME))
    spec = place_of_code(record, directory.path)
    seed = config.reproducibility.experiment_seed or DEFAULT_SEED
    given = (spec, config, record.hparams, world)
    context.name_run(directory.path)
    return directory, spec, prepare(*given, seed=seed, timeout_s=_DOWNLOAD_SECONDS)
