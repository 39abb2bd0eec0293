"""C10, C11: saves beside training, and the averages in them."""

from __future__ import annotations

import signal
import threading

import pytest
from safetensors.torch import load_file

from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.signals import StopRequest


class Asked(StopRequest):
    """A request to stop that comes when a test says so."""

    def come(self, number):
        """As if a signal had come."""
        self.signal = number


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_signal_right_after_a_save_has_begun_leaves_whole_checkpoints(
    make_estimator, monkeypatch, asynchronous
):
    write, stop = Checkpoint.write_tensors, Asked()

    def write_when_the_signal_is_there(path, snapshot):
        stop.come(signal.SIGTERM)
        return write(path, snapshot)

    monkeypatch.setattr(Checkpoint, "write_tensors", write_when_the_signal_is_there)
    run = make_estimator(stop=stop, local_eval_frequency=2, async_save=asynchronous)
    run.train(1000)
    assert run.signal == signal.SIGTERM
    assert run.checkpoints.newest().step == run.state.step < 1000
    for checkpoint in run.checkpoints.list():
        checkpoint.verify()
    assert run.checkpoints.list()[0].step == 2
    assert not list(run.directory.path.glob("*.tmp-*"))


def test_training_goes_on_while_a_checkpoint_is_written(make_estimator, monkeypatch):
    write, stepped = Checkpoint.write_tensors, threading.Event()
    steps = []

    def write_after_a_step(path, snapshot):
        if snapshot.state.step == 2:
            assert stepped.wait(30)
            steps.append(run.state.step)
        return write(path, snapshot)

    monkeypatch.setattr(Checkpoint, "write_tensors", write_after_a_step)
    run = make_estimator(local_eval_frequency=2)
    run.begin()
    add = run.run.meter.add

    def added(*arguments):
        if run.state.step >= 3:
            stepped.set()
        return add(*arguments)

    monkeypatch.setattr(run.run.meter, "add", added)
    run.train(3)
    assert steps == [3]
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [2, 3]


def test_what_is_written_while_training_goes_on_is_the_state_of_its_step(make_estimator):
    beside = make_estimator("beside", local_eval_frequency=1)
    waiting = make_estimator("waiting", local_eval_frequency=1, async_save=False)
    for run in (beside, waiting):
        run.train(6)
    for step in range(1, 7):
        for name in ("model.safetensors", "optimizer.safetensors"):
            files = [run.directory.path / f"ckpt-{step}" / name for run in (beside, waiting)]
            assert files[0].read_bytes() == files[1].read_bytes(), (step, name)


AVERAGES = ["ema_decay=0.9", "swa_start_step=3,swa_every=2"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("hparams", AVERAGES)
@pytest.mark.parametrize("stop", [2, 3, 5])
def test_an_average_survives_a_resume_to_the_last_bit(make_estimator, hparams, stop):
    make_estimator("whole", hparams).train(8)
    for until in (stop, 8):
        run = make_estimator("parts", hparams)
        run.train(until)
        run.close()
    folders = [run.directory.path.parent / name / "ckpt-8" for name in ("whole", "parts")]
    whole, parts = (load_file(folder / "average.safetensors") for folder in folders)
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        assert value.equal(parts[name]), name
    weights = load_file(folders[0] / "model.safetensors")
    assert any(not value.equal(weights[name]) for name, value in whole.items())


def test_a_vocabulary_altered_in_the_run_directory_ends_the_next_start(make_estimator):
    run = make_estimator()
    (run.directory.path / "vocab.words").write_text("one\ntwo\n")
    run.train(2)
    run.close()
    (run.directory.path / "vocab.words").write_text("two\none\n")
    with pytest.raises(CheckpointError, match=r"vocab\.words was altered since ckpt-2 was saved"):
        make_estimator().train(4)
