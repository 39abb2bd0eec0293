"""The position in a schedule that time or patience ends."""

from __future__ import annotations

import json

import pytest
import torch

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.run.checkpoint import TrainerState
from t2t_torch.train.experiment import Experiment
from t2t_torch.train.pace import NAME, Pace

FALLS = "learning_rate_schedule=constant*single_cycle_cos_decay"


def timed(folder, seconds_of_a_step, limit, steps=1000, stop_after=10**9):
    """Steps a pace with a simulated clock; returns it, its last step and its seconds."""
    state = TrainerState()
    pace = Pace(folder, steps, limit, state)
    while state.step < min(pace.end, stop_after) and not pace.is_out_of_time(state):
        if pace.is_due(state):
            pace.replan(state, ONE_PROCESS)
        state.step += 1
        state.seconds += seconds_of_a_step(state.step)
    return pace, state.step, state.seconds


@pytest.mark.quick
def test_without_a_limit_the_position_is_the_step(tmp_path):
    pace = Pace(tmp_path, 100, 0, TrainerState())
    assert [pace.position(step) for step in (0, 7, 99.5)] == [0, 7, 99.5]
    assert pace.end == 100
    assert not (tmp_path / NAME).exists()


@pytest.mark.quick
@pytest.mark.parametrize(
    "speed",
    [lambda step: 0.1, lambda step: 0.05 if step < 300 else 0.2, lambda step: 0.3 - step / 2000],
    ids=["even", "slower", "faster"],
)
def test_a_run_that_time_ends_has_reached_the_end_of_its_schedule(tmp_path, speed):
    pace, step, seconds = timed(tmp_path, speed, limit=50)
    assert step < 1000
    assert pace.position(step) == pytest.approx(1000)
    assert 45 < seconds < 52


@pytest.mark.quick
def test_a_run_that_time_does_not_end_has_the_positions_of_its_steps(tmp_path):
    pace, step, _ = timed(tmp_path, lambda step: 0.01, limit=50)
    assert (step, pace.position(17)) == (1000, 17.0)
    assert not (tmp_path / NAME).exists()


@pytest.mark.quick
def test_a_resumed_run_repeats_its_plans_and_a_torn_line_is_none(tmp_path):
    before, _, _ = timed(tmp_path, lambda step: 0.1 + step % 7 / 50, limit=50, stop_after=200)
    with (tmp_path / NAME).open("a") as file:
        file.write('\n{"step": 201, "posi')
    plans = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()[:-1] if line]
    state = TrainerState(step=50, seconds=8.0)
    resumed = Pace(tmp_path, 1000, 50, state)
    for state.step in range(50, 200):
        if resumed.is_due(state):
            resumed.replan(state, ONE_PROCESS)
    assert resumed.position(200) == before.position(200)
    assert resumed.end == before.end == plans[-1]["end"]


@pytest.mark.quick
def test_more_time_lets_a_schedule_rise_again(tmp_path):
    _, step, seconds = timed(tmp_path, lambda step: 0.1, limit=50)
    longer = Pace(tmp_path, 1000, 100, TrainerState(step=step, seconds=seconds))
    assert 490 < longer.position(step) < 520
    assert longer.end > step


def test_patience_ends_a_run_at_the_end_of_its_schedule(make_estimator, capsys):
    rules = {"eval_patience": 1, "local_eval_frequency": 5, "train_steps": 1000}
    metric = {"eval_early_stopping_metric_delta": 1e9}
    run = make_estimator(hparams=FALLS, **rules, **metric)
    Experiment(run).run("continuous_train_and_eval")
    assert run.state.step == 12  # patience ends at 10, a fifth more is annealed
    assert run.run.optimizer.param_groups[0]["lr"] < 0.5 * run.run.learning_rate(0)
    printed = capsys.readouterr().err
    assert "its schedule ends at step 12" in printed
    run.close()
    again = make_estimator(hparams=FALLS, **rules, **metric)
    Experiment(again).run("continuous_train_and_eval")
    assert again.state.step == 12


def test_a_run_with_little_time_is_annealed_and_says_so(make_estimator, capsys):
    run = make_estimator(hparams=FALLS, train_steps=100000, train_seconds=2)
    Experiment(run).run("train")
    assert run.state.step < 100000
    assert run.run.pace.position(run.state.step) == pytest.approx(100000)
    assert "--train_seconds=2 ends the run, of 100,000 steps" in capsys.readouterr().err
    rate = run.run.optimizer.param_groups[0]["lr"]
    assert rate < run.run.learning_rate(0) and torch.isfinite(torch.tensor(rate))


def test_a_run_without_its_limit_or_with_more_patience_trains_on(make_estimator):
    rules = {"eval_patience": 1, "local_eval_frequency": 5, "train_steps": 20}
    metric = {"eval_early_stopping_metric_delta": 1e9}
    for name, before, after in (
        ("limit", {"train_seconds": 1, "train_steps": 30}, {"train_steps": 30}),
        ("patience", {**rules, **metric}, {**rules, "eval_patience": 50}),
    ):
        run = make_estimator(name, hparams=FALLS, **before)
        if name == "limit":
            run.begin().meter.start_clock()
            run.state.seconds = 0.9
        Experiment(run).run("continuous_train_and_eval")
        run.close()
        assert run.state.step < before["train_steps"]
        longer = make_estimator(name, hparams=FALLS, **after)
        Experiment(longer).run("continuous_train_and_eval")
        assert longer.state.step == before["train_steps"]
        longer.close()


def test_a_run_that_continues_with_another_limit_records_how_before_its_first_step(tmp_path):
    _, step, seconds = timed(tmp_path, lambda _: 1.0, 200, stop_after=60)
    changed = Pace(tmp_path, 1000, 120, TrainerState(step=step, seconds=seconds))
    assert changed.position(step) > step  # the limit of 200 seconds has advanced it
    changed.begin(ONE_PROCESS)
    resumed = Pace(tmp_path, 1000, 120, TrainerState(step=step + 3, seconds=seconds + 3))
    assert resumed.position(step + 3) == changed.position(step + 3)
    assert resumed.end == changed.end
