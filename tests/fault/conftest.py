"""Runs that can be stopped, killed, resumed and compared to the last bit."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mutations
import numbered
import pytest
import results
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.run_config import RunConfig


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums of several threads may differ in their last bits from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def mutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks the library, if tests/fault/test_mutations.py asks for it."""
    mutations.introduce(monkeypatch)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the numbered problems."""
    return numbered.generate(tmp_path_factory.mktemp("numbered"))


@pytest.fixture
def make_estimator(data_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Estimator]]:
    """Makes an estimator in `tmp_path / name`; closes all of them at the end."""
    made = []

    def make(
        name: str = "run",
        hparams: str = "",
        *,
        task: Any = None,
        kind: Any = numbered.Numbered,
        workers: int = 1,
        stop: Any = None,
        **config: Any,
    ) -> Estimator:
        task = task or numbered.make_task(data_dir, hparams, kind, workers)
        settings = {
            "train_steps": 1000,
            "local_eval_frequency": 0,
            "eval_steps": 1,
            "log_step_count_steps": 1,
            **config,
        }
        run_config = RunConfig(**settings)
        directory = numbered.run_directory(tmp_path / name, task, run_config.resume_data)
        made.append(Estimator(task, directory, run_config, stop=stop))
        return made[-1]

    yield make
    for estimator in made:
        estimator.close()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """All that must be equal of a run that was interrupted and of one that was not.

    Attributes:
      tensors: weights, optimizer slots, running averages.
      state: of the trainer, but for what is a matter of the machine.
      reports: of training and evaluation, but for what is a matter of the machine.
      consumed: the examples, batch by batch.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    reports: list[dict[str, Any]]
    consumed: list[list[int]]

    def assert_equals(self, other: Outcome) -> None:
        """Compares to the last bit."""
        assert numbered.digest(self.consumed) == numbered.digest(other.consumed)
        assert self.state == other.state
        assert self.tensors.keys() == other.tensors.keys()
        unequal = [
            name
            for name in other.tensors
            if not torch.equal(self.tensors[name], other.tensors[name])
        ]
        assert unequal == []
        assert self.reports == other.reports


MACHINE = ("second", "time", "memory")  # parts of names of what depends on the machine


def reports_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without what depends on the machine."""
    file = folder / "metrics.jsonl"
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else iter(())
    return [
        {name: value for name, value in line.items() if not any(word in name for word in MACHINE)}
        for line in lines
    ]


def outcome_of(estimator: Estimator, consumed: list[list[int]]) -> Outcome:
    """Returns what an estimator has come to; closes it."""
    estimator.close()
    run = estimator.begin()
    tensors = {name: value.clone() for name, value in estimator.model.state_dict().items()}
    for index, slots in run.optimizer.state_dict()["state"].items():
        tensors.update({f"{index}/{name}": value.clone() for name, value in slots.items()})
    average = getattr(run, "average", None)
    if average is not None:
        tensors |= {f"average/{name}": value.clone() for name, value in average.tensors().items()}
    state = json.loads((estimator.checkpoints.newest().path / "trainer.json").read_text())
    return Outcome(
        tensors,
        {name: value for name, value in state.items() if not any(word in name for word in MACHINE)},
        reports_of(estimator.directory.path),
        consumed,
    )


@pytest.fixture
def train_in_parts(make_estimator: Callable[..., Estimator]) -> Callable[..., Outcome]:
    """Trains up to several steps, with a new estimator each time; returns the outcome."""

    def train(name: str, stops: list[int], workers: Any = 1, **options: Any) -> Outcome:
        numbers = workers if isinstance(workers, list) else [workers] * len(stops)
        consumed: list[list[int]] = []
        for stop, count in zip(stops, numbers, strict=True):
            estimator = make_estimator(name, workers=count, **options)
            estimator.train(stop)
            consumed += estimator.task.consumed  # type: ignore[attr-defined]
            outcome = outcome_of(estimator, consumed)
        return outcome

    return train


PROBLEM = "algorithmic_reverse_binary40_test"
# In single precision Adam's first steps turn rounding of near-zero gradients into whole steps.
SMOOTH = "optimizer_adam_epsilon=0.001"
BATCHES_PER_STEP = 2


@pytest.fixture
def spec(data_dir: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Makes what `processes.train` is told."""

    def make(name: str, until: int, size: int = 1, **more: Any) -> dict[str, Any]:
        accumulate = f"optimizer_multistep_accumulate_steps={BATCHES_PER_STEP // size}"
        return {
            "data_dir": str(data_dir),
            "output_dir": str(tmp_path / name),
            "until": until,
            "notes": str(tmp_path / f"{name}-{until}"),
            "hparams": f"{SMOOTH},{accumulate}",
            **more,
        }

    return make


@pytest.fixture(scope="session")
def algorithmic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of a problem that `t2t-trainer` knows."""
    folder = tmp_path_factory.mktemp("algorithmic")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    (folder / "in.txt").write_text("0 1 1\n1 0\n1 1 1 0\n")
    return folder


@pytest.fixture
def flags(algorithmic: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Makes the flags of `t2t-trainer`."""

    def make(name: str = "run", **more: Any) -> list[str]:
        values = {
            "problem": PROBLEM,
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "batch_size=256,learning_rate_warmup_steps=4",
            "data_dir": algorithmic,
            "output_dir": tmp_path / name,
            "train_steps": 8,
            "local_eval_frequency": 3,
            "log_step_count_steps": 1,
            "eval_steps": 3,
            "worker_gpu": 0,
            **more,
        }
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    return make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Writes what came of all tests into the page that `make fault` names."""
    page = os.environ.get("T2T_FAULT_PAGE")
    if page:
        results.write(Path(page), terminalreporter)
