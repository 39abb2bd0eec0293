"""`--export_best`: which checkpoints are exported, what is kept, and what a stop leaves behind.

The process of t2t-exporter is replaced by one that writes an artifact after some polls, except in
the slow test.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import t2t_torch as t2t
from t2t_torch.errors import ExportError, UsageError
from t2t_torch.runtime.signature import FILE, LATEST, Signature
from t2t_torch.signals import StopRequest
from t2t_torch.train.task import Hook
from t2t_torch.tune.tuner import TrainingOutcome
from t2t_torch.workflows import export_best

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    t2t.generate(PROBLEM, folder, folder, max_cases=160, verbosity=-1)
    return folder


@pytest.fixture
def train(data_dir: Path, tmp_path: Path) -> Callable[..., Path]:
    """Trains eight steps with an evaluation after each; returns the run."""

    def start(name: str = "run", **settings: Any) -> Path:
        known: dict[str, Any] = {"local_eval_frequency": 1, "eval_steps": 1, "worker_gpu": 0}
        t2t.train(
            PROBLEM,
            "transformer",
            "transformer_test",
            data_dir=data_dir,
            output_dir=tmp_path / name,
            hparams={"batch_size": 256, "learning_rate_warmup_steps": 100},
            **{**known, "train_steps": 8, "threads": "1", **settings},
        )
        return tmp_path / name

    return start


class FakeExport:
    """Writes an artifact at the poll number `polls`, or fails."""

    started: list[int] = []  # noqa: RUF012  of all
    polls = 2
    fails = False

    def __init__(self, command: list[str], folder: Path, *_: Any) -> None:
        flags = dict(flag.removeprefix("--").split("=") for flag in command if "=" in flag)
        self.checkpoint = Path(flags["output_dir"], f"ckpt-{flags['checkpoint']}")
        self.artifact, self.left = Path(flags["export_dir"]), self.polls
        self.killed = False
        self.started.append(int(flags["checkpoint"]))

    def start(self) -> None:
        pass

    def outcome(self) -> TrainingOutcome | None:
        assert self.checkpoint.is_dir()  # it is not deleted while it is read
        self.left -= 1
        if self.left > 0:
            return None
        if self.fails:
            return TrainingOutcome("refused", 2, "exit code 2: error: too large")
        self.artifact.mkdir(parents=True, exist_ok=True)
        signature = Signature(PROBLEM, "transformer", int(self.artifact.name), "a step", "now")
        (self.artifact / FILE).write_text(signature.to_json(), encoding="utf-8")
        return TrainingOutcome("done", 0, "")

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> type[FakeExport]:
    class Export(FakeExport):
        started: list[int] = []  # noqa: RUF012

    monkeypatch.setattr(export_best, "Training", Export)
    return Export


def bests(run: Path) -> list[int]:
    """Returns the steps that were the best when they were evaluated."""
    values = json.loads((run / "best.json").read_text())["values"]
    steps = [int(step) for step in values]
    return [step for step in steps if values[str(step)] == min(list(values.values())[:step])]


def artifacts(run: Path) -> list[int]:
    return sorted(int(one.name) for one in (run / "export").iterdir() if one.name.isdecimal())


def test_each_best_checkpoint_is_exported_and_the_weights_are_the_same(
    train: Callable[..., Path], exports: type[FakeExport]
) -> None:
    exports.polls = 1
    plain, run = train("plain"), train(export_best=True)
    assert len(bests(run)) > 3
    assert exports.started == bests(run)
    assert artifacts(run) == bests(run)[-3:]
    assert (run / "export" / LATEST).readlink() == Path(str(bests(run)[-1]))
    for name in ("model", "optimizer"):
        last = f"ckpt-8/{name}.safetensors"
        assert (plain / last).read_bytes() == (run / last).read_bytes()


def test_the_newest_best_waits_while_one_is_exported_whose_checkpoint_stays(
    train: Callable[..., Path], exports: type[FakeExport]
) -> None:
    exports.polls = 9
    run = train(export_best=True, keep_checkpoint_max=1)
    assert exports.started[0] == bests(run)[0]
    assert exports.started[-1] == bests(run)[-1]
    assert len(exports.started) < len(bests(run))
    assert (run / "export" / LATEST / FILE).is_file()
    assert (run / "export" / LATEST).readlink() == Path(str(bests(run)[-1]))


def test_a_failed_export_is_reported_once_and_the_training_goes_on(
    train: Callable[..., Path], exports: type[FakeExport], capsys: pytest.CaptureFixture[str]
) -> None:
    exports.fails = True
    run = train(export_best=True)
    assert (run / "ckpt-8").is_dir()
    assert len(set(exports.started)) == len(exports.started)
    said = capsys.readouterr().err
    assert "IS NOT EXPORTED: exit code 2: error: too large" in said
    exports.fails = False
    exports.started.clear()
    train(export_best=True)  # nothing is left to train
    assert exports.started == bests(run)[-1:]
    assert artifacts(run) == bests(run)[-1:]


def test_nothing_is_exported_twice_unless_the_checkpoint_is_another_one(
    train: Callable[..., Path], exports: type[FakeExport]
) -> None:
    run = train(export_best=True)
    (best,) = bests(run)[-1:]
    exports.started.clear()
    (run / "export" / LATEST).unlink()
    train()  # a run remembers the setting
    assert exports.started == []
    assert (run / "export" / LATEST).readlink() == Path(str(best))
    (run / f"ckpt-{best}" / "MANIFEST.json").touch()
    train()
    assert exports.started == [best]


def test_a_stop_ends_the_export_and_the_next_start_repeats_it(
    train: Callable[..., Path], exports: type[FakeExport], capsys: pytest.CaptureFixture[str]
) -> None:
    class StopAtSix(Hook):
        def after_step(self, estimator: Any) -> None:
            if estimator.state.step == 6:
                stop.request(signal.SIGUSR1)

    stop, exports.polls = StopRequest(), 1000
    train(export_best=True, callbacks=[StopAtSix()], stop=stop)
    assert "was stopped; the next start repeats it" in capsys.readouterr().err
    exports.polls = 1
    run = train()
    assert artifacts(run)[-1] == bests(run)[-1]


def test_remains_of_a_killed_export_are_removed(
    train: Callable[..., Path], exports: type[FakeExport], tmp_path: Path
) -> None:
    killed = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    remains = tmp_path / "run" / "export" / f".4.{int(killed.stdout)}.incomplete"
    remains.mkdir(parents=True)
    train(export_best=True)
    assert not remains.exists()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"schedule": "train"}, "needs evaluations while training"),
        ({"hparams": {"causal_decoder_self_attention": False}}, "no graph for it"),
        ({"model": "of_this_process"}, "known to this one alone"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_the_run_begins(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, reason: str
) -> None:
    def target_of(*_: Any) -> None:
        raise ExportError("there is no graph for it.")

    given: dict[str, Any] = {"model": "transformer", "hparams_set": "transformer_test", **settings}
    if "hparams" in given:
        given["hparams"] = {"batch_size": 256}
        monkeypatch.setattr(export_best, "target_of", target_of)
    elif given["model"] == "of_this_process":
        monkeypatch.setattr("t2t_torch.registry.declared_in", lambda *_: None)
        given["model"] = "transformer"
    with pytest.raises((UsageError, ExportError), match=reason):
        t2t.train(
            PROBLEM, data_dir=data_dir, output_dir=tmp_path / "run", export_best=True, **given
        )
    assert not (tmp_path / "run" / "task.json").exists()


@pytest.mark.slow
def test_a_killed_training_leaves_no_half_export_and_resuming_makes_it(
    data_dir: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "t2t_torch.bin", "trainer", f"--data_dir={data_dir}"]
    command += [f"--output_dir={tmp_path / 'run'}", f"--problem={PROBLEM}", "--export_best"]
    command += ["--model=transformer", "--hparams_set=transformer_test", "--worker_gpu=0"]
    command += ["--hparams=batch_size=256", "--local_eval_frequency=5", "--eval_steps=1"]
    export = tmp_path / "run" / "export"
    endless = subprocess.Popen([*command, "--train_steps=100000"], stderr=subprocess.DEVNULL)
    try:
        while not list(export.glob(".*.incomplete")):
            assert endless.poll() is None
            time.sleep(0.1)
    finally:
        endless.kill()
        endless.wait()
    assert not [one for one in export.iterdir() if one.name.isdecimal()]
    steps = max(int(one.name[5:]) for one in (tmp_path / "run").glob("ckpt-*[0-9]")) + 5
    subprocess.run([*command, f"--train_steps={steps}"], check=True, stderr=subprocess.DEVNULL)
    assert not list(export.glob(".*.incomplete"))
    assert t2t.load(export / LATEST)(["1 0 0 1"])
