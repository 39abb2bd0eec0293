"""C4, C5: disks that are full, fail, or may not be written to."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Checkpoint, Snapshot
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError
from t2t_torch.run.directory import RunDirectory
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import Experiment
from t2t_torch.train.saving import Saver


@pytest.fixture
def disk(monkeypatch):
    """Is full as often as `left` says when a checkpoint is written, and always at some steps."""
    write = Checkpoint.write_rest

    class Disk:
        left = 0
        refused = ()
        tried = 0

        def write(self, path, snapshot, *more):
            write(path, snapshot, *more)
            self.tried += 1
            if snapshot.state.step in self.refused:
                raise OSError(errno.ENOSPC, "No space left on device")
            if self.left:
                self.left -= 1
                raise OSError(errno.ENOSPC, "No space left on device")

    disk = Disk()
    monkeypatch.setattr(Checkpoint, "write_rest", disk.write)
    return disk


@pytest.fixture
def mount(tmp_path):
    """Mounts a file system in memory; skips where that is not allowed."""
    mounted = []

    def make(options):
        place = tmp_path / "mounted"
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "none", place]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def reports(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["split"] == "train"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_training_goes_on_without_a_checkpoint_and_counts_it(
    make_estimator, disk, capsys, asynchronous
):
    run = make_estimator(local_eval_frequency=2, train_steps=5, async_save=asynchronous)
    run.checkpoints.wait = lambda seconds: None
    disk.refused = (2,)
    Experiment(run).run("train")
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [4, 5]
    assert capsys.readouterr().err.count("IS NOT SAVED") == 1
    counts = [report["checkpoint_failures"] for report in reports(run.directory.path)]
    assert (counts[0], counts[-1]) == (0, 1)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ESTALE, errno.EIO])
def test_a_checkpoint_whose_rename_fails_is_written_at_the_next_try(
    make_estimator, monkeypatch, capsys, code
):
    """As on network file systems, where a rename may fail once."""
    run = make_estimator(local_eval_frequency=2, train_steps=4, async_save=False)
    run.checkpoints.wait = lambda seconds: None
    rename, failed = os.rename, []

    def failing(source, target, **more):
        if Path(target).name.startswith("ckpt-") and len(failed) < 2:
            failed.append(target)
            raise OSError(code, os.strerror(code), str(source), None, str(target))
        return rename(source, target, **more)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, failing)
        monkeypatch.setattr(Path, name, lambda self, target: failing(self, target) or Path(target))
    run.train(4)
    assert failed and "trying again" in capsys.readouterr().err
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [2, 4]
    assert not list(run.directory.path.glob("*.tmp-*"))


def test_training_does_not_stand_still_while_a_save_waits_for_the_disk(
    make_estimator, disk, capsys
):
    run = make_estimator(local_eval_frequency=2, train_steps=7)
    disk.refused = (2, 4)
    run.train(7)  # 62 seconds, if each save waited for the one before
    told = capsys.readouterr().err
    lost = [line for line in told.splitlines() if "IS NOT SAVED" in line]
    assert ["ckpt-2:" in lost[0], "ckpt-4:" in lost[1], len(lost)] == [True, True, 2]
    assert all("that of a later step is to be written" in line for line in lost)
    assert run.saving.failures == 2
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [6, 7]


def test_who_wants_so_is_ended_by_the_first_save_that_fails_and_by_no_later_one(
    make_estimator, disk
):
    run = make_estimator(local_eval_frequency=1, train_steps=50, on_save_error="fail")
    run.checkpoints.wait = lambda seconds: None
    disk.refused = range(99)
    with pytest.raises(SaveError, match=r"cannot write the checkpoint .*ckpt-1: "):
        run.train(50)
    assert disk.tried == 4  # nothing of step 2


def test_a_step_that_is_on_its_way_is_not_saved_twice_at_the_end(make_estimator, disk, monkeypatch):
    run = make_estimator(local_eval_frequency=4, train_steps=4)
    run.checkpoints.wait = lambda seconds: None
    disk.refused, ending = (4,), threading.Event()
    save, wait = run.checkpoints.save, Saver.wait

    def slowly(snapshot):
        assert ending.wait(30)
        return save(snapshot)

    def wait_for_it(saver):
        ending.set()
        wait(saver)

    run.checkpoints.save = slowly
    monkeypatch.setattr(Saver, "wait", wait_for_it)
    with pytest.raises(SaveError, match="ckpt-4: "):
        run.train(4)
    assert disk.tried == 4


def test_one_snapshot_is_in_memory_at_a_time(make_estimator, monkeypatch):
    run = make_estimator(local_eval_frequency=1, train_steps=3)
    busy, take = [], Snapshot.take.__func__

    def looking(cls, *args):
        busy.append(run.saving._saver.is_busy)
        return take(cls, *args)

    monkeypatch.setattr(Snapshot, "take", classmethod(looking))
    run.train(3)
    assert busy[:3] == [False] * 3


def test_a_signal_on_a_full_disk_ends_the_run_within_seconds(make_estimator, disk):
    run = make_estimator(local_eval_frequency=2, train_steps=99)
    disk.refused, pauses = range(99), []

    def wait(seconds):
        pauses.append(seconds)
        run._stop.signal = signal.SIGTERM

    run.checkpoints.wait = wait
    with pytest.raises(SaveError, match=r"cannot write .*; there is no other yet"):
        run.train(99)
    assert sum(pauses) <= 10
    assert pauses[-2:] == [1.0, 3.0]


def test_the_checkpoints_before_are_as_they_were(make_estimator, disk):
    run = make_estimator(local_eval_frequency=2, train_steps=6, keep_checkpoint_max=1)
    run.train(2)
    folder = run.directory.path / "ckpt-2"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    run.checkpoints.wait = lambda seconds: None
    disk.left = 99
    with pytest.raises(SaveError):
        run.train(6)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [path.name for path in run.directory.path.glob("ckpt-*")] == ["ckpt-2"]


def test_who_wants_so_is_ended_by_a_save_that_fails(make_estimator, disk):
    run = make_estimator(local_eval_frequency=2, train_steps=50, on_save_error="fail")
    run.checkpoints.wait = lambda seconds: None
    disk.left = 4
    with pytest.raises(SaveError, match=r"cannot write the checkpoint .*ckpt-2: "):
        run.train(50)
    assert run.state.step < 50


@pytest.mark.parametrize("schedule", ["train", "continuous_train_and_eval"])
def test_the_last_checkpoint_must_be_written(make_estimator, disk, schedule):
    run = make_estimator(local_eval_frequency=2, train_steps=4)
    run.checkpoints.wait = lambda seconds: None
    disk.left = 999
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*ckpt-4: "):
        Experiment(run).run(schedule)
    assert run.state.step == 4


def test_a_file_system_that_fills_up_keeps_all_that_were_whole(make_estimator, mount):
    run = make_estimator("source")
    run.train(2)
    run.close()
    place = mount("size=600k")
    directory = CheckpointDirectory(place, wait=lambda seconds: None)
    taken = []
    with pytest.raises(SaveError, match="No space left on device"):
        for step in range(1, 99):
            state = run.state.model_copy(update={"step": step})
            directory.save(Snapshot.take(run.model, run.run.optimizer, state))
            taken.append(step)
    assert len(taken) > 1
    assert [checkpoint.step for checkpoint in directory.list()] == taken
    for checkpoint in directory.list():
        checkpoint.verify()
    shutil.rmtree(place / "ckpt-1")
    directory.save(Snapshot.take(run.model, run.run.optimizer, state))
    assert directory.newest().step == state.step


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_first_step(
    make_estimator, mount
):
    task = make_estimator("source").task
    place = mount("size=100k")
    run = RunDirectory(place)
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    with pytest.raises(CheckpointError, match="cannot be made or written to"):
        run.begin(RunDirectory(place.parent / "source").task(), task.hparams)


def test_permissions_are_looked_at_before_the_first_step(make_estimator, monkeypatch, tmp_path):
    """As the one above, where nothing can be mounted."""
    source = make_estimator("source")
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK))
    with pytest.raises(CheckpointError, match="it is not writable"):
        RunDirectory(tmp_path / "run").begin(source.directory.task(), source.task.hparams)


def test_a_second_trainer_is_refused_while_the_first_is_there(make_estimator):
    """C7."""
    run = make_estimator()
    run.train(2)
    with pytest.raises(CheckpointError, match=r"another training runs in .*\(process \d+ on"):
        make_estimator()
    run.close()
    make_estimator().train(3)


def test_an_evaluation_takes_the_next_one_when_a_trainer_deletes_one(make_estimator, monkeypatch):
    trainer = make_estimator()
    trainer.train(1)
    reader = Estimator(trainer.task, RunDirectory(trainer.directory.path), trainer.config)
    load_model, folder = Checkpoint.load_model, trainer.directory.path / "ckpt-1"

    def late(self, *args, **options):
        if folder.exists():
            shutil.rmtree(folder)
            trainer.train(2)
        return load_model(self, *args, **options)

    monkeypatch.setattr(Checkpoint, "load_model", late)
    Experiment(reader).run("evaluate")
    assert reader.state.step == 2
    reader.close()
