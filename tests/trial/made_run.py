"""Runs of trials that were not trained: code of a few lines, and weights as they were drawn."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.code import keep_code
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.experiment import NAME, RunRecord, copies_of
from t2t_torch.trial.pytorch_trial import TrialContext
from t2t_torch.trial.user_code import call, instance_of, load_definition

SEED = 5
"""Of the runs that `made` begins."""

TRIAL = """
import collections

import numpy as np
import torch
from torch import nn

import pedl
from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader

Pair = collections.namedtuple("Pair", ["left", "right"])


def record(number):
    rng = np.random.RandomState(number)
    return torch.from_numpy(rng.randn(3).astype(np.float32))


def collate(numbers):
    {collate}


def make_data_loaders(experiment_config, hparams):
    def loader():
        return DataLoader(list(range({count})), batch_size=hparams["batch_size"],
                          collate_fn=collate)

    return loader(), loader()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.more = {more}

    def forward(self, {takes}):
        {forward}


class SmallTrial(PyTorchTrial):
    def build_model(self, hparams):
        return Model()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

{methods}
"""

DOCUMENTED = """
    def losses(self, predictions, labels):
        return predictions.mean()

    def validation_metrics(self, predictions, labels, losses):
        return {"loss": losses}
"""


def code(
    forward: str = "return self.linear(x)",
    *,
    takes: str = "x",
    collate: str = "return torch.stack([record(n) for n in numbers]), torch.zeros(len(numbers))",
    more: str = "None",
    methods: str = DOCUMENTED,
    count: int = 25,
) -> str:
    """The code of a trial."""
    lines = {"forward": forward, "collate": collate}
    filled = {
        name: text.replace("\n", "\n        "[: 5 if name == "collate" else 9])
        for name, text in lines.items()
    }
    return TRIAL.format(takes=takes, more=more, methods=methods, count=count, **filled)


def made_run(
    folder: Path,
    trial: str | Path,
    hparams: dict[str, Any] | None = None,
    *,
    steps: tuple[int, ...] = (1, 2, 3),
    data: dict[str, Any] | None = None,
) -> Path:
    """Writes a run; its weights are drawn by the number of the step, the middle one is the best.

    Args:
      folder: is made; the run is `folder / "run"`.
      trial: the code of a file; or where a trial is.
      hparams: of the trial.
      steps: of the checkpoints.
      data: of its configuration.
    """
    folder.mkdir(exist_ok=True)
    if isinstance(trial, str):
        place = folder / "small.py"
        place.write_text(trial)
    else:
        place = trial
    hparams = {"batch_size": 8, **(hparams or {})}
    written = {"hyperparameters": hparams, "data": data or {}}
    record = RunRecord(trial=str(place), config=written, hparams=hparams)
    pytorch_trial.enter(TrialContext({"data": data or {}, "hyperparameters": hparams}, hparams))
    definition = load_definition(record.trial)
    run = RunDirectory(folder / "run")
    task = TaskRecord(trial=definition.trial_class.__name__)
    run.claim_files(task, {NAME: record.text})
    keep_code(run, task, copies_of(definition, run.path))
    run.commit()
    checkpoints = CheckpointDirectory(run.path)
    for step in steps:
        torch.manual_seed(step)
        made = instance_of(definition, hparams, None)
        model = call(made.build_model, copy.deepcopy(hparams), what="build_model")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        checkpoints.save(Snapshot.take(model, optimizer, TrainerState(step=step)))
        best = abs(step - steps[len(steps) // 2])
        checkpoints.rate(step, float(best), lower_is_better=True, metric="loss")
    run.unlock()
    return run.path
