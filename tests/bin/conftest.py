"""A small run from the command line."""

from __future__ import annotations

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Shards of `PROBLEM`."""
    folder = tmp_path_factory.mktemp("data")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


@pytest.fixture
def arguments(data_dir, tmp_path):
    """Makes the flags of a small run; a flag of None is left out."""

    def make(**flags):
        values = {
            "problem": PROBLEM,
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "batch_size=256,learning_rate_warmup_steps=4",
            "data_dir": data_dir,
            "output_dir": tmp_path / "run",
            "train_steps": 3,
            "eval_steps": 1,
            "worker_gpu": 0,
            **flags,
        }
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    return make
