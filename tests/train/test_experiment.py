"""Schedules: what is trained, evaluated and decoded when."""

from __future__ import annotations

import json
import math
import os
import signal
from types import SimpleNamespace

import pytest
import torch

from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.mode import Split
from t2t_torch.run.checkpoint_directory import Ratings, SaveError
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.signals import SignalStop, StopRequest
from t2t_torch.train import experiment
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import BaselineCheck, Experiment
from t2t_torch.train.run_config import SCHEDULES
from t2t_torch.train.task import Hook


def reports(estimator, split):
    """The steps that were reported."""
    file = estimator.directory.path / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line["step"] for line in lines if line["split"] == split]


def checkpoints(estimator):
    return [checkpoint.step for checkpoint in estimator.checkpoints.list()]


def test_every_schedule_does_something_and_says_what():
    for name, plan in SCHEDULES.items():
        assert plan.trains or plan.evaluates or plan.decodes, name
        assert plan.meaning.endswith("."), name
        assert plan.decodes == ("decode" in name), name
        assert plan.repeats or "continuous" not in name, name
    assert len(set(SCHEDULES.values())) == len(SCHEDULES)


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


def test_a_pause_saves_evaluates_and_ends_the_command_and_not_the_run(make_estimator):
    first = make_estimator(train_steps=6, local_eval_frequency=2, pause_at_step=3)
    Experiment(first).run("continuous_train_and_eval")
    first.close()
    assert (checkpoints(first), reports(first, "dev")) == ([2, 3], [2, 3])
    assert first.directory.ended_at() is None
    again = make_estimator(train_steps=6, local_eval_frequency=2, pause_at_step=3)
    Experiment(again).run("continuous_train_and_eval")
    again.close()
    assert (checkpoints(again), reports(again, "dev")) == ([2, 3], [2, 3])
    rest = make_estimator(train_steps=6, local_eval_frequency=2)
    Experiment(rest).run("continuous_train_and_eval")
    assert reports(rest, "dev") == [2, 3, 4, 6]
    assert rest.directory.ended_at() == 6


def test_a_paused_run_goes_on_as_one_that_was_not(make_estimator):
    for pause in (3, 0):
        with make_estimator(train_steps=5, pause_at_step=pause, name="paused") as run:
            Experiment(run).run("train")
    with make_estimator(train_steps=5, name="whole") as whole:
        Experiment(whole).run("train")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name]), name


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


def decoder_of(found, scores=None):
    """What decodes nothing, and notes what it was asked for."""

    def decode(checkpoint, split):
        assert checkpoint.path.is_dir()
        found.append((checkpoint.step, split))
        return (scores or {}).get(checkpoint.step, {})

    return decode


def test_train_eval_and_decode_decodes_after_each_evaluation_what_is_on_the_disk(make_estimator):
    estimator = make_estimator(train_steps=5, local_eval_frequency=2)
    result = []
    Experiment(estimator, decode=decoder_of(result)).run("train_eval_and_decode")
    assert result == [(2, None), (4, None), (5, None)]
    assert reports(estimator, "dev") == [2, 4, 5]


def test_what_is_decoded_may_say_which_checkpoint_is_best(make_estimator):
    estimator = make_estimator(
        train_steps=4, local_eval_frequency=1, eval_early_stopping_metric="bleu"
    )
    scores = {step: {"decode/bleu": bleu} for step, bleu in enumerate([1.0, 7.0, 3.0, 2.0], 1)}
    experiment = Experiment(estimator, decode=decoder_of([], scores), scores=("decode/bleu",))
    experiment.run("train_eval_and_decode")
    assert estimator.checkpoints.best().step == 2
    assert (estimator.state.watched, estimator.state.best_value) == ("max decode/bleu", 7.0)


def test_what_could_not_be_saved_is_not_decoded(make_estimator, monkeypatch, capsys):
    estimator = make_estimator(train_steps=2, local_eval_frequency=1, async_save=False)
    save = estimator.checkpoints.save

    def failing(snapshot):
        if snapshot.state.step == 1:
            raise SaveError("the disk is full")
        return save(snapshot)

    monkeypatch.setattr(estimator.checkpoints, "save", failing)
    result = []
    Experiment(estimator, decode=decoder_of(result)).run("train_eval_and_decode")
    assert result == [(2, None)]
    assert "IS NOT SAVED: the disk is full" in capsys.readouterr().err


def test_evaluate_looks_at_the_newest_checkpoint_also_while_another_process_trains(make_estimator):
    trainer = make_estimator(train_steps=3)
    trainer.train(3)  # and keeps the directory locked
    reader = make_estimator_without_lock(trainer)
    Experiment(reader).run("evaluate")
    trainer_results = trainer.evaluate()
    assert reports(reader, "dev") == [3]  # the one report of the two evaluations
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
    with SignalStop() as stop:
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


def watching(estimator, values, metric="loss"):
    """Makes the evaluations find these values, whatever the weights are."""
    result = iter(values)
    estimator.evaluate = lambda split=None: {metric: next(result)}
    return Experiment(estimator)


EARLY = {
    "train_steps": 9,
    "local_eval_frequency": 1,
    "eval_early_stopping_steps": 2,
    "eval_early_stopping_metric_delta": 0.0,
}


def test_a_run_that_learns_no_more_ends_early_and_says_so(make_estimator, capsys):
    estimator = make_estimator(**EARLY)
    watching(estimator, [3.0, 2.0, 2.5, math.nan, 1.0]).run("continuous_train_and_eval")
    assert estimator.state.step == 4
    assert estimator.directory.ended_at() == 4
    assert "stopped early: loss has not improved since step 2" in capsys.readouterr().err


def test_started_again_it_makes_the_last_evaluation_again_and_comes_to_the_same(
    make_estimator, capsys
):
    first = make_estimator(**EARLY)
    watching(first, [3.0, 2.0, 2.5, 2.5]).run("continuous_train_and_eval")
    first.close()
    again = make_estimator(**EARLY)
    watching(again, [2.5]).run("continuous_train_and_eval")
    assert again.state.step == 4
    assert capsys.readouterr().err.count("stopped early") == 2
    again.close()
    patient = make_estimator(**{**EARLY, "eval_early_stopping_steps": 3})
    watching(patient, [2.5, 2.5]).run("continuous_train_and_eval")
    assert patient.state.step == 5
    assert (patient.state.best_value, patient.state.best_step) == (2.0, 2)


def test_the_best_checkpoints_are_kept_besides_the_newest(make_estimator):
    estimator = make_estimator(
        train_steps=5, local_eval_frequency=1, keep_checkpoint_max=1, keep_checkpoint_best=2
    )
    watching(estimator, [3.0, 1.0, 5.0, 2.0, 4.0]).run("continuous_train_and_eval")
    assert estimator.checkpoints.best().step == 2
    assert checkpoints(estimator) == [2, 4, 5]


def test_a_run_that_watches_another_metric_has_the_best_of_that_one(make_estimator):
    for metric, steps in (("accuracy", 2), ("accuracy_top5", 4)):
        estimator = make_estimator(
            train_steps=steps, local_eval_frequency=1, eval_early_stopping_metric=metric
        )
        Experiment(estimator).run("continuous_train_and_eval")
        estimator.close()
    content = json.loads((estimator.directory.path / "best.json").read_text())
    assert content["metric"].endswith("/accuracy_top5")
    assert set(content["values"]) == {"2", "3", "4"}, "that at step 1 was of the other metric"


def test_the_loss_of_each_evaluation_decides_between_equal_values(make_estimator):
    rule = {"eval_early_stopping_metric": "accuracy"}
    estimator = make_estimator(train_steps=4, local_eval_frequency=1, **rule)
    (name,) = (n for n in estimator.task.evaluator().names() if n.endswith("targets/accuracy"))
    losses = iter([0.4, 0.1, 0.2, 0.3])
    estimator.evaluate = lambda *_: {name: 1.0, "loss": next(losses)}
    Experiment(estimator).run("continuous_train_and_eval")
    content = json.loads((estimator.directory.path / "best.json").read_text())
    assert content["losses"] == {"1": 0.4, "2": 0.1, "3": 0.2, "4": 0.3}
    assert estimator.checkpoints.best().step == 2
    assert (estimator.state.best_step, estimator.state.best_loss) == (2, 0.1)


def test_a_metric_that_evaluations_do_not_have_is_refused_before_the_first_step(make_estimator):
    estimator = make_estimator(eval_early_stopping_metric="acuracy")
    with pytest.raises(UsageError, match=r"Did you mean accuracy.* They have: .*loss"):
        Experiment(estimator).run("continuous_train_and_eval")
    assert checkpoints(estimator) == []


@pytest.mark.parametrize(
    ("metric", "minimize", "direction"),
    [
        ("loss", None, "min loss"),
        ("accuracy", None, "max metrics-algorithmic_reverse_binary40_test/targets/accuracy"),
        ("loss", False, "max loss"),
    ],
)
def test_a_metric_says_itself_which_way_is_better_unless_the_flag_does(
    make_estimator, metric, minimize, direction
):
    estimator = make_estimator(
        train_steps=1,
        local_eval_frequency=1,
        eval_early_stopping_metric=metric,
        eval_early_stopping_metric_minimize=minimize,
    )
    Experiment(estimator).run("continuous_train_and_eval")
    assert estimator.state.watched == direction


@pytest.mark.slow
def test_a_plateau_that_a_signal_interrupts_goes_on_as_if_it_had_not(make_estimator):
    settings = {
        "train_steps": 8,
        "local_eval_frequency": 2,
        "reduce_lr_on_plateau_factor": 0.5,
        "reduce_lr_on_plateau_patience": 1,
        "reduce_lr_on_plateau_threshold": 1000.0,
    }
    whole = make_estimator("whole", **settings)
    Experiment(whole).run("continuous_train_and_eval")
    assert whole.state.plateau_factor == 0.5**3

    stop = StopRequest()
    first = make_estimator(stop=stop, **settings)
    evaluate = first.evaluate

    def interrupted(split=None):
        if first.state.step == 4:
            stop.signal = signal.SIGTERM
        return evaluate(split)

    first.evaluate = interrupted
    Experiment(first).run("continuous_train_and_eval")
    assert (first.signal, reports(first, "dev")) == (signal.SIGTERM, [2])
    first.close()
    resumed = make_estimator(**settings)
    Experiment(resumed).run("continuous_train_and_eval")
    assert reports(resumed, "dev") == reports(whole, "dev") == [2, 4, 6, 8]
    assert resumed.state.model_copy(update={"seconds": whole.state.seconds}) == whole.state
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_seconds_end_a_run_at_once_if_they_are_spent_already(make_estimator, capsys):
    first = make_estimator()
    first.begin()
    first.state.seconds = 60.0
    first.train(2)
    first.close()
    estimator = make_estimator(train_seconds=60)
    Experiment(estimator).run("continuous_train_and_eval")
    assert (checkpoints(estimator), reports(estimator, "dev")) == ([2], [2])
    printed = capsys.readouterr().err
    assert "nothing to train: --train_seconds=60 is absolute" in printed
    assert "has trained 6" in printed
    assert "seconds already" in printed


def test_epochs_end_a_run_when_the_data_was_seen_so_often(make_estimator, capsys):
    estimator = make_estimator(train_epochs=1)
    Experiment(estimator).run("train")
    assert estimator.state.batches_consumed == estimator.state.epoch_batches > 1
    Experiment(estimator).run("train")
    assert "nothing to train: --train_epochs=1 is absolute" in capsys.readouterr().err


class Stopping(Hook):
    """Ends a run after a step, or after an evaluation."""

    def __init__(self, method):
        setattr(self, method, self.stop)

    def stop(self, estimator, *_):
        if estimator.state.step == 4:
            estimator.request_stop("enough")


@pytest.mark.parametrize("method", ["after_step", "after_evaluation"])
def test_a_hook_ends_a_run_which_is_saved_and_evaluated_and_can_continue(
    make_estimator, capsys, method
):
    config = {"train_steps": 12, "local_eval_frequency": 2}
    first = make_estimator(hooks=[Stopping(method)], **config)
    Experiment(first).run("continuous_train_and_eval")
    first.close()
    assert (first.state.step, first.is_done, checkpoints(first)[-1]) == (4, True, 4)
    assert reports(first, "dev") == [2, 4]
    assert capsys.readouterr().err.count("step 4: a hook ends the run: enough") == 1
    again = make_estimator(**config)
    Experiment(again).run("continuous_train_and_eval")
    assert again.state.step == 12


def test_what_is_evaluated_on_train_data_does_not_pass_for_a_report_of_training(make_estimator):
    trainer = make_estimator(train_steps=1, log_step_count_steps=1)
    trainer.train(1)
    reader = make_estimator_without_lock(trainer)
    Experiment(reader).run("evaluate_on_train_data")
    assert reports(reader, "train_data") == [1]
    assert reports(reader, "train") == [1]


def test_continuous_eval_on_train_data_ends_with_the_run(make_estimator):
    trainer = make_estimator(train_steps=1)
    trainer.train(1)
    reader = make_estimator_without_lock(trainer)
    Experiment(reader, wait=no_wait).run("continuous_eval_on_train_data")
    assert reports(reader, "train_data") == [1]


def no_wait(seconds):
    raise AssertionError("there was nothing to wait for")


def test_continuous_eval_ends_with_a_run_that_has_ended_early(make_estimator):
    trainer = make_estimator(**EARLY)
    watching(trainer, [1.0, 1.0, 1.0]).run("continuous_train_and_eval")
    reader = make_estimator_without_lock(trainer)
    Experiment(reader, wait=no_wait).run("continuous_eval")
    assert reports(reader, "dev") == [3]


def test_continuous_eval_tells_the_best_checkpoint_of_a_run_that_only_trains(make_estimator):
    trainer = make_estimator(train_steps=2)
    trainer.train(1)
    reader = make_estimator_without_lock(trainer)
    values = iter([1.0, 5.0])
    reader.evaluate = lambda split=None: {"loss": next(values)}
    Experiment(reader, wait=lambda seconds: trainer.train(2)).run("continuous_eval")
    assert trainer.checkpoints.best().step == 1


def test_a_run_that_goes_on_has_not_ended(make_estimator):
    first = make_estimator(train_steps=1)
    Experiment(first).run("train")
    assert first.directory.ended_at() == 1
    first.close()
    second = make_estimator(train_steps=2)
    second.begin()
    assert second.directory.ended_at() is None


@pytest.mark.parametrize(
    ("schedule", "split"),
    [
        ("continuous_decode", None),
        ("continuous_decode_from_file", None),
        ("continuous_decode_on_train_data", Split.TRAIN),
        ("continuous_decode_on_eval_data", Split.EVAL),
    ],
)
def test_continuous_decoding_waits_for_each_new_checkpoint_until_the_last(
    make_estimator, schedule, split
):
    trainer = make_estimator(train_steps=4)
    reader = make_estimator_without_lock(trainer)
    result, wait = [], lambda seconds: trainer.train(trainer.state.step + 2)
    Experiment(reader, decode=decoder_of(result), wait=wait).run(schedule)
    assert result == [(2, split), (4, split)]


def test_decode_decodes_with_the_newest_checkpoint(make_estimator):
    trainer = make_estimator(train_steps=4)
    trainer.train(3)
    result = []
    Experiment(make_estimator_without_lock(trainer), decode=decoder_of(result)).run("decode")
    assert result == [(3, None)]


def test_decode_needs_a_checkpoint(make_estimator):
    with pytest.raises(CheckpointError, match=r"no checkpoint to decode with\. Train first"):
        Experiment(make_estimator(), decode=decoder_of([])).run("decode")


def test_a_signal_while_decoding_ends_a_schedule_without_more_training(make_estimator):
    stop = StopRequest()
    estimator = make_estimator(stop=stop, train_steps=4, local_eval_frequency=2)

    def decode(checkpoint, split):
        stop.signal = signal.SIGTERM
        estimator.is_stop_requested()
        return {}

    Experiment(estimator, decode=decode).run("train_eval_and_decode")
    assert (checkpoints(estimator), estimator.state.evaluated) == ([2], -1)
    assert estimator.directory.ended_at() is None


def test_what_is_watched_in_decodes_is_left_alone_by_who_only_evaluates(make_estimator):
    trainer = make_estimator(train_steps=1, eval_early_stopping_metric="bleu")
    trainer.train(1)
    trainer.checkpoints.rate(1, 30.0, lower_is_better=False)
    before = (trainer.directory.path / "best.json").read_text()
    reader = make_estimator_without_lock(trainer)
    Experiment(reader, wait=no_wait).run("continuous_eval")
    assert reports(reader, "dev") == [1]
    assert (trainer.directory.path / "best.json").read_text() == before


def test_a_run_that_ends_early_is_on_the_disk_or_fails(make_estimator, monkeypatch):
    estimator = make_estimator(**EARLY, async_save=False)
    save = estimator.checkpoints.save

    def failing(snapshot):
        if snapshot.state.step == 3:
            raise SaveError("the disk is full")
        return save(snapshot)

    monkeypatch.setattr(estimator.checkpoints, "save", failing)
    with pytest.raises(SaveError, match="the disk is full"):
        watching(estimator, [1.0, 1.0, 1.0]).run("continuous_train_and_eval")


def test_a_lower_end_than_the_run_has_reached_is_not_its_end(make_estimator):
    first = make_estimator(train_steps=9)
    first.train(3)
    first.close()
    estimator = make_estimator(train_steps=2)
    Experiment(estimator).run("continuous_train_and_eval")
    assert (first.directory.ended_at(), reports(estimator, "dev")) == (None, [])


@pytest.mark.parametrize(("rated", "accuracy"), [(True, 0.9), (False, 0.2)])
def test_a_check_of_baselines_is_of_the_best_step_or_the_newest(
    tmp_path, monkeypatch, rated, accuracy
):
    ratings, metrics = Ratings(tmp_path), MetricsFile(tmp_path)
    for step, value in enumerate([0.5, 0.9, 0.1, 0.7, 0.2], 1):
        ratings.add(step, value, lower_is_better=False)
        metrics.add("dev", step, {"accuracy": value})
        metrics.add("train", step, {"accuracy": 1.0})
    if not rated:
        (tmp_path / ratings._file.name).write_text("{")
    monkeypatch.setattr(experiment, "warnings_of", lambda *known: [str(known[-1])])
    said = []
    estimator = SimpleNamespace(
        task=SimpleNamespace(hparams=SimpleNamespace(fits=False)),
        has_ended=True,
        world=SimpleNamespace(leads=True),
        directory=SimpleNamespace(path=tmp_path),
        say=said.append,
    )
    BaselineCheck(None, tmp_path).end(estimator)
    assert len(said) == 1 and f"'accuracy': {accuracy}" in said[0]
