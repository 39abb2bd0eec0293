"""A search with the trainer itself: a rung pauses, a kill is survived, the best is like any run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("optuna")

TRIAL = """
    import os
    import pathlib
    import signal

    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    import pedl
    from pedl.frameworks.pytorch import PyTorchTrial
    from pedl.frameworks.pytorch.data import DataLoader

    def once(what):
        file = pathlib.Path(os.environ["ONCE"], what)
        if file.exists():
            return False
        file.touch()
        return True

    def make_data_loaders(experiment_config, hparams):
        x = torch.linspace(-1, 1, 24).unsqueeze(1)
        data = TensorDataset(x, 2 * x)
        return DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=10)

    class LineTrial(PyTorchTrial):
        batches = 0

        def build_model(self, hparams):
            if once("invalid"):
                raise pedl.InvalidHP("it is the first")
            hidden = hparams["net"]["hidden"]
            return nn.Sequential(nn.Linear(1, hidden), nn.Linear(hidden, 1))

        def optimizer(self, model):
            return torch.optim.Adam(model.parameters(), lr=pedl.get_hyperparameter("lr"))

        def losses(self, predictions, labels):
            self.batches += torch.is_grad_enabled()
            if self.batches == 6 and once("killed"):  # more than the first rung has
                os.kill(os.getpid(), signal.SIGKILL)
            return ((predictions - labels) ** 2).mean()

        def validation_metrics(self, predictions, labels, losses):
            return {"error": losses.item()}
"""

CONFIG = {
    "hyperparameters": {
        "lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10},
        "net": {"hidden": {"type": "int", "minval": 2, "maxval": 8}},
    },
    "searcher": {
        "name": "adaptive_asha",
        "metric": "error",
        "smaller_is_better": True,
        "max_length": {"batches": 16},
        "max_trials": 3,
        "max_rungs": 2,
        "divisor": 3,
        "mode": "aggressive",
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a trial and its configuration."""
    (tmp_path / "line.py").write_text(textwrap.dedent(TRIAL))
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def ran(folder: Path, command: str, *arguments: str) -> str:
    """Runs a command to its end; returns what it has printed."""
    done = subprocess.run(
        [sys.executable, "-m", "t2t_torch.bin", command, *arguments],
        cwd=folder,
        env={**os.environ, "ONCE": str(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def evaluations(run: Path) -> dict[int, Any]:
    reports = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {
        one["step"]: next(value for name, value in one.items() if name.endswith("error"))
        for one in reports
        if one["split"] != "train"
    }


@pytest.mark.slow
def test_the_best_of_a_disturbed_search_is_a_run_of_the_full_length(folder: Path) -> None:
    output = ran(
        folder, "tuner", "--trial=line.py", "--config=search.yaml", "--output_dir=search",
        "--worker_gpu=0",
    )  # fmt: skip
    search = folder / "search"
    record = json.loads((search / "search.json").read_text())
    trials = record["trials"]
    assert record["over"] and len(trials) == 4
    assert "resumes from its checkpoint: signal SIGKILL" in output
    assert [one["restarts"] for one in trials].count(1) == 1
    assert trials[0]["error"].startswith("invalid hyperparameters: ")
    assert "it is the first" in trials[0]["error"]
    assert {(one["state"], one["step"]) for one in trials[1:]} <= {
        ("stopped", 5),
        ("completed", 16),
    }
    assert all(one["curve"][0][0] == 5 for one in trials[1:])

    best = json.loads((search / "best.json").read_text())
    assert best["step"] == 16 and (search / "best").resolve() == Path(best["run"])
    best_values = yaml.safe_load((search / "best.yaml").read_text())
    assert best_values["hyperparameters"]["net"]["hidden"] == best["hparams"]["net.hidden"]
    (folder / "best.yaml").write_text(yaml.safe_dump({**CONFIG, **best_values}))
    ran(
        folder, "trainer", "--trial=line.py", "--config=best.yaml", "--output_dir=alone",
        "--train_steps=16", f"--random_seed={record['seed']}", "--worker_gpu=0",
    )  # fmt: skip
    assert evaluations(folder / "alone")[16] == evaluations(Path(best["run"]))[16] == best["value"]
