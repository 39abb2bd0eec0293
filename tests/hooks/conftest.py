"""Runs of milliseconds, with hooks."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import Experiment, chosen_hooks
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_config import RunConfig

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Shards of `PROBLEM`."""
    folder = tmp_path_factory.mktemp("data")
    generate_data(
        registry.problem(PROBLEM), folder, folder, num_processes=1, max_cases=160, progress=False
    )
    return folder


@pytest.fixture
def make_run(data_dir, tmp_path):
    """Makes an estimator in `tmp_path / "run"` with the hooks that its settings ask for."""

    def make(hparams: str = "", **config) -> Estimator:
        settings = {"train_steps": 4, "local_eval_frequency": 2, "log_step_count_steps": 2}
        config = RunConfig(**{**settings, "eval_steps": 2, **config})
        task = ProblemTask(
            registry.problem(PROBLEM),
            registry.model("transformer"),
            registry.hparams("transformer_test")
            .parse("batch_size=256,learning_rate_warmup_steps=4")
            .parse(hparams),
            data_dir=data_dir,
            vocab_dir=data_dir,
        )
        directory = RunDirectory(tmp_path / "run")
        record = TaskRecord(problem=PROBLEM, model="transformer", hparams_set="transformer_test")
        directory.begin(record, task.hparams)
        return Estimator(task, directory, config, hooks=chosen_hooks(config, task.hparams))

    return make


@pytest.fixture
def train(make_run):
    """Trains and evaluates in turns; returns the run's folder."""

    def run(hparams: str = "", **config):
        with make_run(hparams, **config) as estimator:
            Experiment(estimator).run("continuous_train_and_eval")
            return estimator.directory.path

    return run
