"""A problem that takes milliseconds: data made once, tasks with dropout, runs in temporary
folders."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.multi_task import MultiTask
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_config import RunConfig

from .two_problems import SMALL, register_and_generate

PROBLEM = "algorithmic_reverse_binary40_test"
RECORD = TaskRecord(problem=PROBLEM, model="transformer", hparams_set="transformer_test")


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may differ in their last bits from run to run."""
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
def make_task(data_dir):
    """Makes a task; hparams as a string."""

    def make(hparams: str = "") -> ProblemTask:
        small = "batch_size=256,learning_rate_warmup_steps=4,learning_rate_constant=0.5"
        return ProblemTask(
            registry.problem(PROBLEM),
            registry.model("transformer"),
            registry.hparams("transformer_test").parse(small).parse(hparams),
            data_dir=data_dir,
            vocab_dir=data_dir,
        )

    return make


@pytest.fixture
def make_estimator(make_task, tmp_path):
    """Makes an estimator in `tmp_path / name`; closes all of them at the end."""
    made = []

    def make(
        name: str = "run", hparams: str = "", stop=None, task=None, hooks=(), **config
    ) -> Estimator:
        settings = {"train_steps": 100, "local_eval_frequency": 0, "eval_steps": 2, **config}
        task = task or make_task(hparams)
        directory = RunDirectory(tmp_path / name)
        directory.begin(RECORD, task.hparams, resume_data=settings.get("resume_data", "exact"))
        made.append(Estimator(task, directory, RunConfig(**settings), stop=stop, hooks=hooks))
        return made[-1]

    yield make
    for estimator in made:
        estimator.close()


@pytest.fixture
def tiny_problems(own_registry, tmp_path):
    """The data of `two_problems`, which are registered."""
    return register_and_generate(tmp_path)


@pytest.fixture
def make_multi(tiny_problems):
    """Makes the task of a problem."""

    def make(hparams: str = "", problem: str = "tiny_both"):
        chosen = registry.hparams("transformer_encoder_tiny").parse(SMALL).parse(hparams)
        kind = (
            MultiTask
            if problem.startswith(("tiny_both", "tiny_str", "tiny_unlike"))
            else ProblemTask
        )
        model = registry.model("transformer_encoder")
        return kind(
            registry.problem(problem),
            model,
            chosen,
            data_dir=tiny_problems,
            vocab_dir=tiny_problems,
        )

    return make
