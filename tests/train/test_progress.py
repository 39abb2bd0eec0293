"""What a user sees while waiting."""

from __future__ import annotations

import sys

import pytest

from t2t_torch.train import summary
from t2t_torch.train.summary import TrainProgress

REPORT = {
    "loss": 2.5,
    "learning_rate": 1e-3,
    "grad_norm": 0.7,
    "tokens_per_second": 12345.6,
    "steps_per_second": 2.0,
    "padding_fraction": 0.05,
}


def on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_a_log_file_gets_lines_with_rate_and_time_left(capsys):
    progress = TrainProgress(100, shown=True)
    progress.start(0)
    progress.advance(1)
    progress.report(40, REPORT)
    progress.close()
    line = "step 40/100  loss 2.5000  lr 0.001  norm 0.7  12,346 tokens/s  00:30 left\n"
    assert capsys.readouterr().err == line


def test_the_first_step_is_no_measure_of_the_time_left(capsys):
    progress = TrainProgress(1001, shown=True)
    progress.start(0)
    progress.report(1, {**REPORT, "steps_per_second": 0.05})  # five hours, of 33 minutes
    assert "left" not in capsys.readouterr().err
    progress.report(11, {**REPORT, "steps_per_second": 0.5})
    assert capsys.readouterr().err.endswith("  33:00 left\n")


def test_the_time_left_is_a_range_where_reports_differ(capsys):
    progress = TrainProgress(1040, shown=True)
    progress.start(0)
    for step, speed in ((10, 1.0), (20, 4.0), (40, 2.0)):
        progress.report(step, {**REPORT, "steps_per_second": speed})
    assert capsys.readouterr().err.endswith("  04:10-16:40 left\n")
    for step in (41, 42, 43):
        progress.report(step, {**REPORT, "steps_per_second": 2.0})
    assert capsys.readouterr().err.endswith("  08:18 left\n")


def test_a_log_file_gets_a_line_when_nothing_was_said_for_ten_seconds(capsys, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(summary.time, "monotonic", lambda: next(clock))
    progress = TrainProgress(100, shown=True)
    progress.start(0)
    for step in range(1, 8):
        progress.advance(step)
    assert capsys.readouterr().err == "step 3/100\nstep 6/100\n"
    list(progress.evaluation(range(5), None, "dev"))
    assert "evaluate dev: 2 of 5 batches\n" in capsys.readouterr().err


def test_steps_that_moved_nothing_are_told(capsys):
    TrainProgress(100, shown=True).report(40, {**REPORT, "skipped_steps": 3.0})
    assert "tokens/s  3 skipped  00:30 left" in capsys.readouterr().err


def test_an_end_that_is_known_when_training_begins_holds(capsys):
    progress = TrainProgress(250000, shown=True)
    progress.start(0, 50)
    progress.report(40, REPORT)
    assert "step 40/50 " in capsys.readouterr().err


def test_a_terminal_gets_a_bar_and_lines_above_it(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    progress = TrainProgress(100, shown=True)
    progress.start(40)
    progress.advance(41)
    progress.report(41, REPORT)
    progress.say("evaluated")
    progress.close()
    shown = capsys.readouterr().err
    assert "| 41/100" in shown
    assert "loss 2.5000" in shown
    assert "evaluated\n" in shown


@pytest.mark.parametrize(("limit", "total"), [(None, 3), (2, 2), (9, 3)])
def test_an_evaluation_has_a_bar_of_its_own(capsys, monkeypatch, limit, total):
    on_a_terminal(monkeypatch)
    progress = TrainProgress(100, shown=True)
    progress.start(40)
    assert list(progress.evaluation([1, 2, 3], limit, "dev")) == [1, 2, 3][:limit]
    progress.close()
    assert f"evaluate dev:   0%|          | 0/{total}" in capsys.readouterr().err


def test_an_evaluation_whose_end_nobody_knows_has_a_bar_too(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    progress = TrainProgress(100, shown=True)
    assert list(progress.evaluation(iter([1, 2]), None, "dev")) == [1, 2]
    assert "evaluate dev: 0batch" in capsys.readouterr().err


def test_a_log_file_gets_no_bar(capsys):
    assert list(TrainProgress(9, shown=True).evaluation([1, 2, 3], 2, "dev")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_processes_that_do_not_lead_are_silent(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    progress = TrainProgress(100, shown=False)
    progress.start(0)
    assert list(progress.evaluation([1], None, "dev")) == [1]
    progress.say("hello")
    progress.close()
    assert capsys.readouterr().err == ""


def test_processes_that_do_not_lead_write_no_lines(capsys):
    progress = TrainProgress(100, shown=False)
    progress.report(40, REPORT)
    progress.say("hello")
    assert capsys.readouterr().err == ""


def test_the_time_left_is_that_of_the_clock_where_it_ends_first(capsys):
    progress = TrainProgress(100, shown=True)
    progress.start(0, 100, 25)
    progress.report(40, {**REPORT, "seconds": 20.0})
    progress.report(99, {**REPORT, "seconds": 20.0})
    printed = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[-1] for line in printed] == ["00:05 left", "00:00 left"]
