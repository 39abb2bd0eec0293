"""Checkpoints on a disk that fails, and beside a trainer that deletes them."""

from __future__ import annotations

import errno
import json
import shutil

import pytest
import torch

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Checkpoint, Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError
from t2t_torch.run.tensors import load_optimizer

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk(monkeypatch):
    """Fails as often as `left` says when it shall flush a file."""

    class Disk:
        left = 0
        error = FULL

        def fsync(self, descriptor):
            if self.left:
                self.left -= 1
                raise self.error

    disk = Disk()
    monkeypatch.setattr("t2t_torch.run.storage.os.fsync", disk.fsync)
    return disk


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_a_save_that_fails_is_tried_again_later_and_later(tmp_path, save, disk, error):
    disk.left, disk.error, waits = 3, error, []
    assert save(tmp_path, [1], wait=waits.append).newest().step == 1
    assert waits == [1.0, 5.0, 25.0]


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_a_save_that_cannot_be_leaves_nothing_half(tmp_path, save, disk, error):
    disk.left, disk.error = 99, error
    with pytest.raises(SaveError, match=r"cannot write the checkpoint .*ckpt-1: "):
        save(tmp_path, [1], wait=lambda seconds: None)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_writes_something_else_is_found_out_before_the_checkpoint_has_its_name(
    tmp_path, save, monkeypatch
):
    monkeypatch.setattr("t2t_torch.run.checkpoint.sha256_of", lambda file: "0" * 64)
    with pytest.raises(SaveError, match=r"cannot write .* was altered"):
        save(tmp_path, [1], wait=lambda seconds: None)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_told_at_once_and_when_it_is_tried_again(tmp_path, save, disk, capsys):
    lines = []
    disk.left = 3
    save(tmp_path, [7], wait=lambda seconds: lines.append(capsys.readouterr().err))
    start, end = "warning: the checkpoint ckpt-7 is not written yet: ", "; trying again in"
    assert all(line.startswith(start + str(FULL) + end) for line in lines)
    assert [line.rpartition(" in ")[2] for line in lines] == ["1 s\n", "5 s\n", "25 s\n"]


def test_the_error_says_which_checkpoints_there_are(tmp_path, save, disk):
    disk.left = 4
    with pytest.raises(SaveError, match=r"; there is no other yet\.$"):
        save(tmp_path, [1], wait=lambda seconds: None)
    save(tmp_path, [2, 4])
    disk.left = 4
    with pytest.raises(SaveError, match=r"; there are those of the steps 2, 4\.$"):
        save(tmp_path, [5], wait=lambda seconds: None)


def test_a_full_disk_gets_room_by_what_would_be_deleted_afterwards(tmp_path, save, disk, capsys):
    save(tmp_path, [1, 2, 3])
    there = []

    def look(seconds):
        there.append(sorted(path.name for path in tmp_path.glob("ckpt-*")))

    disk.left = 1
    save(tmp_path, [4], keep=2, wait=look)
    assert there == [["ckpt-3"]]
    assert "deleted before ckpt-4 is written, to free disk space: ckpt-1, ckpt-2" in (
        capsys.readouterr().err
    )
    disk.left = 1
    save(tmp_path, [5], keep=1, wait=look)
    assert there[1] == ["ckpt-4"]  # the newest stays till there is another
    assert [one.step for one in CheckpointDirectory(tmp_path).list()] == [5]


def test_nothing_makes_room_if_the_newest_is_broken_or_the_disk_is_not_full(tmp_path, save, disk):
    save(tmp_path, [1, 2, 3])
    there = []

    def look(seconds):
        there.append(len(list(tmp_path.glob("ckpt-*"))))

    disk.left, disk.error = 4, BROKEN
    with pytest.raises(SaveError):
        save(tmp_path, [4], keep=2, wait=look)
    disk.left, disk.error = 4, FULL
    (tmp_path / "ckpt-3" / "trainer.json").write_text("")
    with pytest.raises(SaveError):
        save(tmp_path, [4], keep=2, wait=look)
    assert there == [3] * 6


def test_who_gives_up_does_not_wait_for_the_disk(tmp_path, snapshot, disk):
    disk.left = 99
    directory = CheckpointDirectory(tmp_path)
    directory.retries.give_up()
    with pytest.raises(SaveError):
        directory.save(snapshot())
    assert disk.left == 98  # tried once


def deleting(monkeypatch, name, folder, then):
    """Makes a method of `Checkpoint` come too late, once."""
    method = getattr(Checkpoint, name)

    def late(self, *args):
        if self.path == folder and folder.exists():
            shutil.rmtree(folder)
            then()
        return method(self, *args)

    monkeypatch.setattr(Checkpoint, name, late)


@pytest.mark.parametrize("method", ["verify", "check_vocabularies"])
def test_one_deleted_while_it_is_verified_is_no_fault(tmp_path, save, monkeypatch, capsys, method):
    directory = save(tmp_path, [1])
    deleting(monkeypatch, method, tmp_path / "ckpt-1", lambda: save(tmp_path, [2]))
    assert directory.newest().step == 2
    assert capsys.readouterr().err == ""


def test_one_deleted_between_verifying_and_reading_gives_way_to_the_next(
    tmp_path, save, tied, monkeypatch
):
    directory = save(tmp_path, [1])
    deleting(monkeypatch, "load_model", tmp_path / "ckpt-1", lambda: save(tmp_path, [2]))
    read = directory.read_newest(lambda one: one.load_model(tied()))
    assert read.step == 2


def test_what_is_read_wrongly_but_is_there_is_an_error(tmp_path, save):
    with pytest.raises(CheckpointError, match="does not fit the model"):
        save(tmp_path, [1]).read_newest(lambda one: one.load_model(torch.nn.Linear(3, 3)))


def test_all_broken_ones_are_listed_once(tmp_path, save):
    directory = save(tmp_path, [1, 2])
    for step in (1, 2):
        (tmp_path / f"ckpt-{step}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError) as error:
        directory.newest(repair=True)
    assert [str(error.value).count(f"ckpt-{step}") for step in (1, 2)] == [1, 1]


def test_a_renamed_checkpoint_is_broken(tmp_path, save):
    directory = save(tmp_path, [1])
    (tmp_path / "ckpt-1").rename(tmp_path / "ckpt-5")
    with pytest.raises(CheckpointError, match="is the checkpoint of step 1: rename it to ckpt-1"):
        directory.at(5)


def test_one_without_its_optimizer_is_broken(tmp_path, save):
    directory = save(tmp_path, [1])
    file = tmp_path / "ckpt-1" / "MANIFEST.json"
    manifest = json.loads(file.read_text())
    del manifest["files"]["optimizer.safetensors"]
    file.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"does not list \['optimizer.safetensors'\]"):
        directory.at(1)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path, save, monkeypatch):
    def failing(file):
        raise BROKEN

    directory = save(tmp_path, [1])
    monkeypatch.setattr("t2t_torch.run.checkpoint.sha256_of", failing)
    with pytest.raises(CheckpointError, match=r"cannot be read: .*Input/output error"):
        directory.at(1)


def test_a_state_of_another_version_is_refused_with_both(tmp_path, save):
    checkpoint = save(tmp_path, [1]).newest()
    state = {"version": "9.9", "phase_of_the_moon": 3}
    (checkpoint.path / "trainer.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=r"t2t_torch 9\.9.*this t2t_torch \d"):
        checkpoint.trainer_state()


def test_saving_over_a_broken_one_replaces_it(tmp_path, save):
    directory = save(tmp_path, [1])
    (tmp_path / "ckpt-1" / "model.safetensors").write_bytes(b"")
    save(tmp_path, [1])
    assert directory.newest().step == 1


def test_slots_of_parameters_that_are_not_there_are_refused(tmp_path, snapshot):
    checkpoint = CheckpointDirectory(tmp_path).save(snapshot())
    model = torch.nn.ModuleDict({"middle": torch.nn.Linear(3, 3), "other": torch.nn.Linear(1, 1)})
    optimizer = torch.optim.Adam(model.parameters())
    file = checkpoint.path / "optimizer.safetensors"
    with pytest.raises(CheckpointError, match=r"the model has no parameter 'embedding\.weight'"):
        load_optimizer(optimizer, model, file)


def adam_snapshot(model, used):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for parameter in used:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return Snapshot.take(model, optimizer, TrainerState(step=1))


def test_slots_that_are_missing_are_refused(tmp_path):
    small, model = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2)
    checkpoint = CheckpointDirectory(tmp_path).save(adam_snapshot(small, small.parameters()))
    with pytest.raises(CheckpointError, match="has no slots of bias"):
        checkpoint.load_optimizer(torch.optim.Adam(model.parameters()), model)


def test_a_parameter_that_was_never_used_needs_no_slots(tmp_path):
    model = torch.nn.Linear(2, 2)
    checkpoint = CheckpointDirectory(tmp_path).save(adam_snapshot(model, [model.weight]))
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint.load_optimizer(optimizer, model)
    assert list(optimizer.state_dict()["state"]) == [0]


VOCABULARIES = ["vocab.a.subwords", "labels.a.b.txt", "moments.a.dense.json"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_vocabulary_altered_in_the_run_is_refused_by_its_name(tmp_path, save, name):
    (tmp_path / name).write_text("one two")
    directory = save(tmp_path, [1])
    assert directory.newest().step == 1
    (tmp_path / name).write_text("two one")
    for read in (directory.newest, lambda: directory.at(1)):
        with pytest.raises(CheckpointError, match=rf"{name} was altered since ckpt-1 was saved"):
            read()
    assert [one.step for one in directory.list()] == [1]  # no fault of the checkpoint


def test_a_checkpoint_is_still_one_beside_no_vocabulary(tmp_path, save):
    (tmp_path / "vocab.a").write_text("one two")
    directory = save(tmp_path, [1])
    (tmp_path / "vocab.a").unlink()
    assert directory.newest().step == 1
