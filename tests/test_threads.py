"""Trainings in threads and within callbacks: the same bits as alone, and nothing of the caller."""

from __future__ import annotations

import io
import json
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.reporter import SILENT, JsonLinesReporter, reporting
from t2t_torch.signals import SIGNALS, StopRequest

PROBLEM = "algorithmic_reverse_binary40_test"
STEPS = 6


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Shards of `PROBLEM`."""
    folder = tmp_path_factory.mktemp("data")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


@pytest.fixture(scope="module")
def train(data_dir):
    """Trains a model whose dropout draws random numbers."""

    def call(run: Path, seed: int = 1, **settings: Any) -> Any:
        known: dict[str, Any] = {"train_steps": STEPS, "local_eval_frequency": 3, "eval_steps": 2}
        return t2t.train(
            PROBLEM,
            "transformer",
            "transformer_test",
            data_dir=data_dir,
            output_dir=run,
            hparams={"batch_size": 256, "layer_prepostprocess_dropout": 0.3},
            random_seed=seed,
            worker_gpu=0,
            **{**known, **settings},
        )

    return call


@pytest.fixture(scope="module")
def alone(train, tmp_path_factory):
    """Runs of the seeds 1 and 2, each trained alone."""
    folder = tmp_path_factory.mktemp("alone")
    for seed in (1, 2):
        train(folder / str(seed), seed)
    return folder


def result(run: Path, step: int = STEPS) -> tuple[bytes, list[Any]]:
    """The weights of a run, and the losses of its evaluations."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    losses = [one["loss"] for one in map(json.loads, lines) if "loss" in one]
    return (run / f"ckpt-{step}" / "model.safetensors").read_bytes(), losses


def of_process() -> list[Any]:
    """What belongs to the caller."""
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        [signal.getsignal(number) for number in SIGNALS],
        sys.stdout,
        sys.stderr,
    ]


class AtStep(t2t.Hook):
    """Calls something after a step, once."""

    def __init__(self, step, call):
        self.step, self.call = step, call

    def after_step(self, estimator):
        if estimator.state.step == self.step:
            self.call()


def test_runs_of_two_seeds_differ(alone):
    assert result(alone / "1") != result(alone / "2")


def test_trainings_and_an_evaluation_in_threads_compute_as_alone(train, alone, tmp_path):
    expected, before = t2t.evaluate(alone / "1"), of_process()
    found, told = {}, {seed: io.StringIO() for seed in (1, 2)}

    def train_and_tell(seed: int) -> None:
        with reporting(JsonLinesReporter(told[seed])):
            train(tmp_path / str(seed), seed)
        found[seed] = result(tmp_path / str(seed))

    def evaluate() -> None:
        found["evaluations"] = [t2t.evaluate(alone / "1", verbosity=-1) for _ in range(3)]

    threads = [threading.Thread(target=train_and_tell, args=[seed]) for seed in (1, 2)]
    threads.append(threading.Thread(target=evaluate))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["evaluations"] == [expected] * 3
    assert [found[seed] == result(alone / str(seed)) for seed in (1, 2)] == [True, True]
    assert of_process() == before
    for seed, text in told.items():  # each training reports to the reporter of its own thread
        lines = [json.loads(line)["message"] for line in text.getvalue().splitlines()]
        assert f"{tmp_path / str(seed)}" in "\n".join(lines)
        assert f"{tmp_path / str(3 - seed)}" not in "\n".join(lines)


@pytest.mark.parametrize("moment", ["after_step", "before_update", "after_report"])
def test_a_training_in_a_callback_changes_no_bit(train, alone, tmp_path, moment):
    runs = iter([tmp_path / "inner"])

    def nested(hook, *_):
        for run in runs:
            train(run, 2)

    hook = type("Nested", (t2t.Hook,), {moment: nested})()
    train(tmp_path / "outer", 1, callbacks=[hook])
    assert result(tmp_path / "outer") == result(alone / "1")
    assert result(tmp_path / "inner") == result(alone / "2")


def fail():
    raise OSError("of the hook")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, None),
        ({"callbacks": [AtStep(2, fail)]}, OSError),
        ({"hparams": {"hidden_size": 7}}, t2t.T2TError),
        ({"train_step": 3}, t2t.T2TError),
        ({"callbacks": [AtStep(2, lambda: signal.raise_signal(signal.SIGINT))]}, KeyboardInterrupt),
        ({"callbacks": [AtStep(2, lambda: signal.raise_signal(signal.SIGTERM))]}, SystemExit),
    ],
)
def test_what_belongs_to_the_caller_is_as_before(train, data_dir, tmp_path, settings, error):
    torch.manual_seed(7)
    before = of_process()
    known = {"data_dir": data_dir, "output_dir": tmp_path / "run", "train_steps": 3}
    hparams = {"batch_size": 256, "layer_prepostprocess_dropout": 0.3}
    known |= {"worker_gpu": 0, "hparams": hparams, **settings}

    def call() -> None:
        t2t.train(PROBLEM, "transformer", "transformer_test", **known)

    if error is None:
        call()
        t2t.evaluate(tmp_path / "run")
    else:
        with pytest.raises(error):
            call()
    assert of_process() == before


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_requested_stop_saves_returns_the_model_and_is_resumed(train, alone, tmp_path, in_thread):
    stop = StopRequest()

    def request() -> None:
        if not in_thread:
            stop.request()
            return
        other = threading.Thread(target=stop.request)
        other.start()
        other.join()

    run, before = tmp_path / "run", of_process()
    with reporting(SILENT):
        model = train(run, callbacks=[AtStep(4, request)], stop=stop)
    assert stop and of_process() == before
    assert json.loads((run / "latest.json").read_text())["step"] == 4
    assert len(model(["0 1 1"])) == 1
    train(run)
    assert result(run)[0] == result(alone / "1")[0]
