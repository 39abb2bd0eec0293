"""Checkpoints on a disk that is full, and beside a trainer that deletes them."""

from __future__ import annotations

import errno
import json
import shutil

import pytest
import safetensors
import safetensors.torch
import torch

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.checkpoint.weights import load_optimizer, save_optimizer
from t2t_torch.errors import CheckpointError
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import Experiment
from t2t_torch.train.run_directory import RunDirectory

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = safetensors.SafetensorError("I/O error: Input/output error (os error 5)")


@pytest.fixture
def disk(monkeypatch):
    """Fails as often as `left` says when tensors are written."""
    save_file = safetensors.torch.save_file

    class Disk:
        left = 0
        error = FULL

        def save_file(self, *args, **kwargs):
            save_file(*args, **kwargs)
            if self.left:
                self.left -= 1
                raise self.error

    disk = Disk()
    monkeypatch.setattr(safetensors.torch, "save_file", disk.save_file)
    return disk


def save(folder, *steps, wait=lambda seconds: None):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    directory = CheckpointDirectory(folder, wait=wait)
    for step in steps:
        directory.save(model, optimizer, TrainerState(step=step))
    return directory


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_a_save_that_fails_is_tried_again_later_and_later(tmp_path, disk, error):
    disk.left, disk.error, waits = 3, error, []
    assert save(tmp_path, 1, wait=waits.append).newest().step == 1
    assert waits == [1.0, 5.0, 25.0]


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_a_save_that_cannot_be_leaves_nothing_half(tmp_path, disk, error):
    disk.left, disk.error = 99, error
    with pytest.raises(SaveError, match=r"cannot write the checkpoint .*ckpt-1: "):
        save(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_training_goes_on_without_a_checkpoint_and_counts_it(make_estimator, disk, capsys):
    run = make_estimator(local_eval_frequency=2, train_steps=5, log_step_count_steps=1)
    run.checkpoints.wait = lambda seconds: None
    disk.left = 4  # one save, and its three repetitions
    Experiment(run).run("train")
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [4, 5]
    assert "WARNING: step 2 IS NOT SAVED" in capsys.readouterr().err
    lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
    counts = [json.loads(line)["checkpoint_failures"] for line in lines]
    assert (counts[0], counts[-1]) == (0, 1)


@pytest.mark.parametrize("schedule", ["train", "continuous_train_and_eval"])
def test_the_last_checkpoint_must_be_written(make_estimator, disk, schedule):
    run = make_estimator(local_eval_frequency=2, train_steps=4)
    run.checkpoints.wait = lambda seconds: None
    disk.left = 999
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*ckpt-4: "):
        Experiment(run).run(schedule)
    assert run.state.step == 4


def deleting(monkeypatch, name, folder, then):
    """Makes a method of `Checkpoint` come too late, once."""
    method = getattr(Checkpoint, name)

    def late(self, *args):
        if folder.exists():
            shutil.rmtree(folder)
            then()
        return method(self, *args)

    monkeypatch.setattr(Checkpoint, name, late)


def test_one_deleted_while_it_is_verified_is_no_fault(tmp_path, monkeypatch, capsys):
    directory = save(tmp_path, 1)
    deleting(monkeypatch, "verify", tmp_path / "ckpt-1", lambda: save(tmp_path, 2))
    assert directory.newest().step == 2
    assert capsys.readouterr().err == ""


def test_one_deleted_between_verifying_and_reading_gives_way_to_the_next(tmp_path, monkeypatch):
    directory = save(tmp_path, 1)
    deleting(monkeypatch, "load_model", tmp_path / "ckpt-1", lambda: save(tmp_path, 2))
    read = directory.read_newest(lambda one: one.load_model(torch.nn.Linear(2, 2)))
    assert read.step == 2


def test_what_is_read_wrongly_but_is_there_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="does not fit the model"):
        save(tmp_path, 1).read_newest(lambda one: one.load_model(torch.nn.Linear(3, 3)))


def test_an_evaluation_takes_the_next_one_too(make_estimator, monkeypatch):
    trainer = make_estimator()
    trainer.train(1)
    reader = Estimator(trainer.task, RunDirectory(trainer.directory.path), trainer.config)
    folder = trainer.directory.path / "ckpt-1"
    deleting(monkeypatch, "load_model", folder, lambda: trainer.train(2))
    Experiment(reader).run("evaluate")
    assert reader.state.step == 2


def test_all_broken_ones_are_listed_once(tmp_path):
    directory = save(tmp_path, 1, 2)
    for step in (1, 2):
        (tmp_path / f"ckpt-{step}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError) as error:
        directory.newest(repair=True)
    assert [str(error.value).count(f"ckpt-{step}") for step in (1, 2)] == [1, 1]


def test_a_renamed_checkpoint_is_broken(tmp_path):
    directory = save(tmp_path, 1)
    (tmp_path / "ckpt-1").rename(tmp_path / "ckpt-5")
    with pytest.raises(CheckpointError, match="is the checkpoint of step 1: rename it to ckpt-1"):
        directory.at(5)


def test_one_without_its_optimizer_is_broken(tmp_path):
    directory = save(tmp_path, 1)
    file = tmp_path / "ckpt-1" / "MANIFEST.json"
    manifest = json.loads(file.read_text())
    del manifest["files"]["optimizer.safetensors"]
    file.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"does not list \['optimizer.safetensors'\]"):
        directory.at(1)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path, monkeypatch):
    def failing(file):
        raise OSError(errno.EIO, "Input/output error")

    directory = save(tmp_path, 1)
    monkeypatch.setattr("t2t_torch.checkpoint.checkpoint.sha256_of", failing)
    with pytest.raises(CheckpointError, match=r"cannot be read: .*Input/output error"):
        directory.at(1)


def test_a_state_of_another_version_is_refused_with_both(tmp_path):
    checkpoint = save(tmp_path, 1).newest()
    state = {"version": "9.9", "phase_of_the_moon": 3}
    (checkpoint.path / "trainer.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=r"t2t_torch 9\.9.*this t2t_torch \d"):
        checkpoint.trainer_state()


def test_saving_over_a_broken_one_replaces_it(tmp_path):
    directory = save(tmp_path, 1)
    (tmp_path / "ckpt-1" / "model.safetensors").write_bytes(b"")
    save(tmp_path, 1)
    assert directory.newest().step == 1


def adam_of(model, used):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for parameter in used:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


def test_slots_that_are_missing_are_refused(tmp_path):
    small, model = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2)
    save_optimizer(adam_of(small, small.parameters()), small, tmp_path / "slots")
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(CheckpointError, match="has no slots of bias"):
        load_optimizer(optimizer, model, tmp_path / "slots")


def test_a_parameter_that_never_had_a_gradient_has_no_slots_to_miss(tmp_path):
    model = torch.nn.Linear(2, 2)
    save_optimizer(adam_of(model, [model.weight]), model, tmp_path / "slots")
    optimizer = torch.optim.Adam(model.parameters())
    load_optimizer(optimizer, model, tmp_path / "slots")
    assert set(optimizer.state) == {model.weight}
