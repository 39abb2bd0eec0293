"""Saves in a thread: training goes on, and nothing is lost silently."""

from __future__ import annotations

import io
import threading
import weakref

import pytest

from t2t_torch.reporter import JsonLinesReporter, reporting
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError
from t2t_torch.train.saving import Saver


class SlowDirectory(CheckpointDirectory):
    """Writes when it is told to, and fails at the steps it is told to."""

    def __init__(self, path, failing=(), error=SaveError):
        super().__init__(path, wait=lambda seconds: None)
        self.go, self.begun = threading.Event(), threading.Event()
        self.began = []
        self.failing, self.error = failing, error

    def save(self, snapshot):
        step = snapshot.state.step
        self.began.append(step)
        self.begun.set()
        assert self.go.wait(30)
        if step in self.failing:
            raise self.error(f"step {step}")
        return super().save(snapshot)


def steps_of(directory):
    return [checkpoint.step for checkpoint in directory.list()]


def test_training_goes_on_while_a_thread_writes(tmp_path, snapshot):
    directory = SlowDirectory(tmp_path)
    saver = Saver(directory)
    saver.save(snapshot(1))
    assert steps_of(directory) == []  # back, and nothing is written yet
    directory.go.set()
    saver.wait()
    assert steps_of(directory) == [1]


def test_without_a_thread_it_is_there_when_save_returns(tmp_path, snapshot):
    saver = Saver(CheckpointDirectory(tmp_path), asynchronous=False)
    saver.save(snapshot(1))
    assert (tmp_path / "ckpt-1").is_dir()


def test_the_next_save_waits_for_the_one_before(tmp_path, snapshot):
    directory = SlowDirectory(tmp_path)
    saver = Saver(directory)
    saver.save(snapshot(1))
    assert directory.begun.wait(30)
    second = threading.Thread(target=saver.save, args=(snapshot(2),))
    second.start()
    second.join(0.05)
    assert second.is_alive()
    assert directory.began == [1]
    directory.go.set()
    second.join(30)
    saver.wait()
    assert steps_of(directory) == [1, 2]


def test_what_is_saved_is_what_was_when_it_was_asked_for(tmp_path, trained):
    directory = SlowDirectory(tmp_path)
    saver = Saver(directory)
    model, optimizer = trained()
    state = TrainerState(step=1, tokens=5, hooks={"a": {"b": 1}})
    before = model.middle.weight.detach().clone()
    saver.save(Snapshot.take(model, optimizer, state))
    state.tokens, state.hooks["a"]["b"] = 6, 2
    model.middle.weight.data.zero_()
    for slots in optimizer.state.values():
        slots["exp_avg"].zero_()
    directory.go.set()
    saver.wait()

    checkpoint = directory.newest()
    other, other_optimizer = trained()
    checkpoint.load_model(other)
    checkpoint.load_optimizer(other_optimizer, other)
    assert other.middle.weight.equal(before)
    assert all(slots["exp_avg"].any() for slots in other_optimizer.state.values())
    assert checkpoint.trainer_state().tokens == 5
    assert checkpoint.trainer_state().hooks == {"a": {"b": 1}}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_is_told_once_and_is_not_lost_when_the_next_goes_well(
    tmp_path, snapshot, asynchronous
):
    directory = SlowDirectory(tmp_path, failing=(1,))
    directory.go.set()
    saver = Saver(directory, asynchronous=asynchronous)
    assert saver.failure() is None
    saver.save(snapshot(1))
    saver.save(snapshot(2))
    saver.wait()  # the last one went well
    assert "step 1" in str(saver.failure())
    assert saver.failure() is None
    assert steps_of(directory) == [2]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_who_waits_is_told_how_it_ended_and_nobody_else(tmp_path, snapshot, asynchronous):
    directory = SlowDirectory(tmp_path, failing=(1, 2))
    directory.go.set()
    saver = Saver(directory, asynchronous=asynchronous)
    saver.save(snapshot(1))
    saver.save(snapshot(2))
    with pytest.raises(SaveError, match="step 2"):
        saver.wait()
    saver.wait()
    assert "step 1" in str(saver.failure())
    assert saver.failure() is None


def test_a_defect_in_the_thread_is_raised_in_the_one_that_trains(tmp_path, snapshot):
    directory = SlowDirectory(tmp_path, failing=(1,), error=ZeroDivisionError)
    directory.go.set()
    saver = Saver(directory)
    saver.save(snapshot(1))
    saver._join()
    with pytest.raises(ZeroDivisionError):
        saver.failure()


def test_closing_waits_for_the_save_but_not_for_a_disk_that_fails(
    tmp_path, snapshot, monkeypatch, capsys
):
    def full(descriptor):
        calls.append(descriptor)
        failed.set()
        raise OSError(28, "No space left on device")

    calls, failed = [], threading.Event()
    monkeypatch.setattr("t2t_torch.run.storage.os.fsync", full)
    saver = Saver(CheckpointDirectory(tmp_path))
    saver.save(snapshot(1))
    assert failed.wait(30)
    saver.close()  # 31 seconds, if it waited as saving does
    assert len(calls) <= 2
    assert "IS NOT SAVED: cannot write the checkpoint" in capsys.readouterr().err


class FullDirectory(CheckpointDirectory):
    """On a disk that is full for the first step; how busy the machine is ends no pause."""

    def __init__(self, path):
        super().__init__(path)
        self.tried, self.failed = [], threading.Event()
        pause = self.wait
        self.wait = lambda seconds: pause(600.0 * seconds)

    def _staged_folder(self, final):
        self.tried.append(final.step)
        if final.step == 1:
            self.failed.set()
            raise OSError(28, "No space left on device")
        return super()._staged_folder(final)


def test_a_later_state_takes_the_place_of_one_that_waits_for_the_disk(tmp_path, snapshot):
    directory = FullDirectory(tmp_path)
    saver = Saver(directory)
    saver.save(snapshot(1))
    assert directory.failed.wait(30)
    assert saver.is_busy
    saver.settle(replace=True)  # hours, if it waited as saving does
    assert not saver.is_busy
    saver.save(snapshot(2))
    saver.wait()
    assert directory.tried == [1, 2]
    assert "ckpt-1: [Errno 28] No space left on device. It is not tried again, as" in str(
        saver.failure()
    )


def test_a_save_that_goes_well_is_never_replaced(tmp_path, snapshot):
    directory = SlowDirectory(tmp_path)
    saver = Saver(directory)
    saver.save(snapshot(1))
    threading.Timer(0.05, directory.go.set).start()
    saver.settle(replace=True)
    assert steps_of(directory) == [1]
    assert saver.failure() is None


def test_a_failure_does_not_keep_the_snapshot_in_memory(tmp_path, snapshot):
    directory = FullDirectory(tmp_path)
    directory.wait = lambda seconds: None
    saver = Saver(directory)
    failing = snapshot(1)
    held = weakref.ref(failing)
    saver.save(failing)
    del failing
    saver.settle()
    assert held() is None
    assert saver.failure() is not None


def test_the_thread_holds_up_no_process_that_ends(tmp_path, snapshot):
    directory = SlowDirectory(tmp_path)
    saver = Saver(directory)
    saver.save(snapshot(1))
    assert saver._thread.daemon
    directory.go.set()
    saver.close()


def test_the_thread_reports_to_the_reporter_of_the_run(tmp_path, snapshot, capsys):
    written, directory = io.StringIO(), FullDirectory(tmp_path)
    directory.wait = lambda seconds: None
    with reporting(JsonLinesReporter(written)):
        saver = Saver(directory)
        saver.save(snapshot(1))
        saver.settle()
    assert "is not written yet" in written.getvalue()
    assert capsys.readouterr().err == ""
    assert saver.failure() is not None
