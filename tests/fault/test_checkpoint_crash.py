"""C3: a run killed between any two system calls of a save goes on from a whole checkpoint."""

from __future__ import annotations

from pathlib import Path

import forked
import processes
import pytest
import saving
from conftest import reports_of
from safetensors.torch import load_file

from t2t_torch.run import storage
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folders of saves that were killed, in the order of the system calls."""
    folder = tmp_path_factory.mktemp("killed")
    told = tmp_path_factory.mktemp("told") / "errors"
    process = forked.start_program([saving.__file__, folder], told)
    process.join()
    assert process.exitcode == 0, told.read_text()
    return sorted(folder.iterdir(), key=lambda path: int(path.name))


def steps_after(folders, found):
    return [found(CheckpointDirectory(folder)).step for folder in folders]


@pytest.mark.slow
def test_there_is_always_a_newest_whole_checkpoint_and_it_never_goes_back(killed):
    steps = steps_after(killed, CheckpointDirectory.newest)
    assert len(killed) > 70  # system calls of two saves and an evaluation
    assert steps == sorted(steps)
    assert set(steps) == {1, 2, 3}


@pytest.mark.slow
def test_there_is_always_a_best_checkpoint_and_it_never_goes_back(killed):
    steps = steps_after(killed, CheckpointDirectory.best)
    assert steps == sorted(steps)
    assert set(steps) == {1, 2}


@pytest.mark.slow
def test_what_is_whole_holds_what_was_saved(killed):
    for folder in killed:
        newest = CheckpointDirectory(folder).newest()
        weights = load_file(newest.path / "model.safetensors")["weight"]
        assert weights.equal(saving.snapshot(newest.step).weights["weight"])


@pytest.mark.slow
def test_the_next_trainer_sweeps_up_and_saves(killed):
    for folder in killed:
        run = RunDirectory(folder)
        run.lock()
        directory = CheckpointDirectory(folder)
        directory.newest(repair=True)
        directory.save(saving.snapshot(9))
        run.unlock()
        names = {path.name for path in folder.iterdir()}
        there = {"best.json", "latest.json", "train.lock", "vocab.a"}
        assert names - there == {f"ckpt-{one.step}" for one in directory.list()}
        assert directory.newest().step == 9


def killed_at(data_dir, folder, numbers):
    """Trains a run that is killed at system calls of its saves; returns tensors and reports."""
    spec = {
        "data_dir": str(data_dir),
        "output_dir": str(folder / "run"),
        "until": 6,
        "config": {"local_eval_frequency": 2, "keep_checkpoint_max": 2},
    }
    for number in numbers:
        told = {storage.VARIABLE: f"save:{number}"}
        child = processes.start(folder / "err", processes.train, spec, **told)
        if child.wait() == 0:
            break
        assert child.process.exitcode == storage.KILLED, child.said
    if not numbers or child.process.exitcode:
        child = processes.start(folder / "err", processes.train, spec)
        assert child.wait() == 0, child.said
    checkpoint = Path(CheckpointDirectory(folder / "run").at(6).path)
    tensors = {
        f"{file.name}/{name}": value.numpy().tobytes()
        for file in checkpoint.glob("*.safetensors")
        for name, value in load_file(file).items()
    }
    return tensors, reports_of(folder / "run")


@pytest.mark.parametrize(
    "numbers",
    [
        [4, 70, 145],
        pytest.param([*range(5, 200, 5), *range(180, 1000, 60)], marks=pytest.mark.slow),
    ],
    ids=["thrice", "often"],
)
def test_a_run_killed_while_it_saves_ends_as_one_that_was_not(data_dir, tmp_path, numbers):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = killed_at(data_dir, tmp_path / "whole", [])
    assert killed_at(data_dir, tmp_path / "killed", numbers) == whole
