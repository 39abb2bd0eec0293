"""What tests of trials need: the trials that users wrote, and a process without one."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from made_run import SEED

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.run_config import RunConfig
from t2t_torch.trial import pytorch_trial, user_code
from t2t_torch.trial.experiment import ExperimentConfig
from t2t_torch.trial.preparation import prepare
from t2t_torch.trial.pytorch_trial import TrialContext
from t2t_torch.yaml_file import read_mapping

TRIALS = Path(__file__).parent / "trials"


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests change a trial's code within a second, which its cached bytecode would not show."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def trials() -> Path:
    """The directory of trials as users wrote them."""
    return TRIALS


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TrialContext]]:
    """Enters a context of given hyperparameters and data; after the test no trial is left."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(pytorch_trial._Current, "context", None)

    def entered(
        hparams: dict[str, Any] | None = None, data: dict[str, Any] | None = None
    ) -> TrialContext:
        config = {"data": data or {}, "hyperparameters": hparams or {}}
        made = TrialContext(experiment_config=config, hparams=hparams or {})
        pytorch_trial.enter(made)
        return made

    yield entered
    user_code._Loaded.forget()


@pytest.fixture
def made(trials, tmp_path, monkeypatch):
    """Makes an estimator of a trial in `tmp_path / name`, and closes it at the end.

    Relative paths of configurations are in `tmp_path`, too.
    """
    monkeypatch.chdir(tmp_path)
    threads, opened = torch.get_num_threads(), []
    torch.set_num_threads(1)

    def make(spec, *, name="run", hparams=None, config=None, steps=1000, **settings):
        known = read_mapping(trials / config) if isinstance(config, str) else dict(config or {})
        known.setdefault("data", {}).setdefault("path", str(tmp_path / "data"))
        known.update(settings)
        chosen = {**known.get("hyperparameters", {}), **(hparams or {})}
        experiment = ExperimentConfig.from_dict({**known, "hyperparameters": chosen})
        task = prepare(str(spec), experiment, chosen, ONE_PROCESS, seed=SEED, timeout_s=60)
        directory = RunDirectory(tmp_path / name)
        run_config = RunConfig(
            train_steps=steps, local_eval_frequency=0, log_step_count_steps=1, random_seed=SEED
        )
        directory.claim_files(TaskRecord(trial=task.name, train_steps=steps), {})
        opened.append(Estimator(task, directory, run_config))
        return opened[-1]

    yield make
    for estimator in opened:
        estimator.close()
    user_code._Loaded.forget()
    torch.set_num_threads(threads)


@pytest.fixture
def write(tmp_path):
    """Writes a trial of one file: its head, and the methods of its class."""

    def written(code, name="mine.py"):
        file = tmp_path / name
        file.write_text(textwrap.dedent(code))
        return file

    return written
