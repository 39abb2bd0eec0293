"""Schedules: what is trained, evaluated and decoded when."""

from __future__ import annotations

import json
import os
import signal

import pytest

from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import Experiment
from t2t_torch.train.run_config import SCHEDULES
from t2t_torch.train.run_directory import RunDirectory
from t2t_torch.train.stop import StopRequest


def reports(estimator, split):
    """The steps that were reported."""
    file = estimator.directory.path / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line["step"] for line in lines if line["split"] == split]


def checkpoints(estimator):
    return [checkpoint.step for checkpoint in estimator.checkpoints.list()]


def test_every_schedule_is_there():
    assert [name for name in SCHEDULES if not callable(getattr(Experiment, name, None))] == []


def test_an_unknown_schedule_is_refused_with_those_there_are(make_estimator):
    with pytest.raises(UsageError, match=r"no --schedule=trian.*continuous_eval"):
        Experiment(make_estimator()).run("trian")


def test_continuous_train_and_eval_evaluates_each_checkpoint_and_the_end(make_estimator):
    estimator = make_estimator(train_steps=5, local_eval_frequency=2)
    Experiment(estimator).run("continuous_train_and_eval")
    assert checkpoints(estimator) == [2, 4, 5]
    assert reports(estimator, "dev") == [2, 4, 5]


def test_after_a_resume_it_evaluates_at_the_same_steps(make_estimator):
    first = make_estimator(train_steps=5)
    first.train(3)
    first.close()
    estimator = make_estimator(train_steps=6, local_eval_frequency=2)
    Experiment(estimator).run("continuous_train_and_eval")
    assert reports(estimator, "dev") == [4, 6]


def test_train_evaluates_nothing(make_estimator):
    estimator = make_estimator(train_steps=3, log_step_count_steps=3)
    Experiment(estimator).run("train")
    assert (reports(estimator, "train"), reports(estimator, "dev")) == ([3], [])


@pytest.mark.parametrize("schedule", ["train", "continuous_train_and_eval"])
def test_a_run_that_is_done_says_so_and_trains_no_further(make_estimator, capsys, schedule):
    first = make_estimator(train_steps=3)
    first.train(3)
    first.close()
    estimator = make_estimator(train_steps=2)
    Experiment(estimator).run(schedule)
    assert "of the run, which is at step 3 already" in capsys.readouterr().err
    assert checkpoints(estimator) == [3]


def test_train_eval_and_decode_decodes_after_each_evaluation(make_estimator):
    estimator = make_estimator(train_steps=5, local_eval_frequency=2)
    decoded = []

    def decode():
        decoded.append((estimator.state.step, reports(estimator, "dev")[-1]))

    Experiment(estimator, decode=decode).run("train_eval_and_decode")
    assert decoded == [(2, 2), (4, 4), (5, 5)]


def test_evaluate_looks_at_the_newest_checkpoint_also_while_another_process_trains(make_estimator):
    trainer = make_estimator(train_steps=3)
    trainer.train(3)  # and keeps the directory locked
    reader = make_estimator_without_lock(trainer)
    Experiment(reader).run("evaluate")
    trainer_results = trainer.evaluate()
    assert reports(reader, "dev") == [3, 3]
    assert trainer_results["loss"] > 0


def make_estimator_without_lock(trainer):
    """One that reads what another trains."""
    return Estimator(trainer.task, RunDirectory(trainer.directory.path), trainer.config)


def test_evaluate_needs_a_checkpoint(make_estimator):
    with pytest.raises(CheckpointError, match=r"no checkpoint to evaluate\. Train first"):
        Experiment(make_estimator()).run("evaluate")


def test_continuous_eval_waits_for_each_new_checkpoint_until_the_last(make_estimator):
    trainer = make_estimator(train_steps=4)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        trainer.train(trainer.state.step + 2)

    reader = make_estimator_without_lock(trainer)
    Experiment(reader, wait=wait).run("continuous_eval")
    assert reports(reader, "dev") == [2, 4]
    assert len(waits) == 2


def test_continuous_eval_gives_up_when_nothing_comes(make_estimator, capsys):
    estimator = make_estimator(eval_timeout_mins=1)
    waits = []
    Experiment(estimator, wait=waits.append).run("continuous_eval")
    assert sum(waits) == pytest.approx(60)
    assert "no new checkpoint for 1 minutes" in capsys.readouterr().err


def test_a_signal_ends_the_waiting(make_estimator):
    with StopRequest() as stop:
        estimator = make_estimator(stop=stop)

        def wait(seconds):
            os.kill(os.getpid(), signal.SIGTERM)

        Experiment(estimator, wait=wait).run("continuous_eval")
    assert estimator.signal == signal.SIGTERM


def test_test_takes_one_step_and_evaluates(make_estimator):
    estimator = make_estimator(eval_steps=1)
    Experiment(estimator).run("test")
    assert (checkpoints(estimator), reports(estimator, "dev")) == ([1], [1])


def test_test_trains_no_further_than_the_run_goes(make_estimator, capsys):
    first = make_estimator(train_steps=2)
    first.train(2)
    first.close()
    estimator = make_estimator(train_steps=2)
    Experiment(estimator).run("test")
    assert "is at step 2 already" in capsys.readouterr().err
    assert (checkpoints(estimator), reports(estimator, "dev")) == ([2], [2])
