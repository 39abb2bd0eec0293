"""A run to export: requests, what is wanted and which words say what."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.testing import small

_PROBLEM = '''"""Requests."""

from t2t_torch.problem_types.words import IntentSlotProblem
from t2t_torch.mode import Split
from t2t_torch.registry import register_problem


@register_problem("small_requests")
class SmallRequests(IntentSlotProblem):
    """Where to go; words that only the dev split has are unknown."""

    word_characters = 6
    shards = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}

    def generate_samples(self, tmp_dir, split):
        """Yields the requests."""
        for number in range(30):
            city = f"Place{number % 7}" if split is Split.TRAIN else f"Town{number}"
            words = ["please"] * (number % 3) + ["go", "to", city]
            tags = ["O"] * (len(words) - 1) + ["B-city"]
            yield {"inputs": words, "intent": "go", "slots": tags}
            yield {"inputs": ["stay", "here"], "intent": "stay", "slots": ["O", "O"]}
'''


def shelf_of(folder: Path) -> Path:
    """Writes the user's folder that declares the problem."""
    shelf = folder / "requests_shelf"
    shelf.mkdir()
    (shelf / "requests.py").write_text(_PROBLEM)
    return shelf


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `data`, and `run` with checkpoints of the steps 1, 2 and 3.

    Nothing was learnt: the weights are as they were drawn.  Step 2 is the best.
    """
    folder = tmp_path_factory.mktemp("made")
    state, roots = registry._STATE, registry._STATE.roots[:]
    registry.import_usr_dir(shelf_of(folder))
    problem = registry.problem("small_requests")
    generate_data(problem, folder / "data", folder, num_processes=1, progress=False)
    _write_run(folder / "run", folder)
    state.roots[:] = roots
    state.forget_index()
    del state.objects["problem"]["small_requests"]
    for name in [name for name in sys.modules if name.split(".")[0] == "requests_shelf"]:
        del sys.modules[name]
    yield folder


def _write_run(path: Path, folder: Path) -> None:
    problem, model = registry.problem("small_requests"), registry.model("joint_bilstm")
    hparams = small(registry.hparams("joint_bilstm_tiny")).replace(
        batch_size=96, num_hidden_layers=1
    )
    task = TaskRecord(
        problem=problem.full_name,
        model="joint_bilstm",
        hparams_set="joint_bilstm_tiny",
        usr_dirs=(str(folder / "requests_shelf"),),
    )
    run = RunDirectory(path)
    run.begin(task, hparams)
    for name in problem.vocab_files:
        (path / name).write_bytes((folder / "data" / name).read_bytes())
    checkpoints = CheckpointDirectory(path)
    for step in (1, 2, 3):
        torch.manual_seed(step)
        network = model(hparams, problem.features(path))
        adam = torch.optim.Adam(network.parameters())
        checkpoints.save(Snapshot.take(network, adam, TrainerState(step=step)))
    rated = {"metric": "loss", "lower_is_better": True}
    for step, value in ((1, 3.0), (2, 1.0), (3, 2.0)):
        checkpoints.rate(step, value, **rated)
    run.unlock()


@pytest.fixture
def run(made: Path, own_registry: None) -> Path:
    """The run directory; its problem is declared by the run's own `--t2t_usr_dir`."""
    assert json.loads((made / "run" / "task.json").read_text())["usr_dirs"]
    return made / "run"


@pytest.fixture
def data(made: Path) -> Path:
    """The generated data."""
    return made / "data"
