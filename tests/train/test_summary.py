"""What a user sees while waiting."""

from __future__ import annotations

import json
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_torch.train.summary import Progress, Summary

REPORT = {
    "loss": 2.5,
    "learning_rate": 1e-3,
    "grad_norm": 0.7,
    "tokens_per_second": 12345.6,
    "steps_per_second": 2.0,
    "padding_fraction": 0.05,
}


def test_a_report_is_a_line_of_json_and_a_point_in_tensorboard(tmp_path):
    summary = Summary(tmp_path, leads=True)
    summary.write("train", 3, REPORT)
    summary.write("dev", 3, {"loss": 1.5, "rouge": math.nan})
    summary.close()
    train, dev = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (train["step"], train["split"], train["loss"]) == (3, "train", 2.5)
    assert (dev["loss"], dev["rouge"]) == (1.5, None)
    for folder, loss in ((tmp_path, 2.5), (tmp_path / "eval", 1.5)):
        events = EventAccumulator(str(folder)).Reload()
        assert [(point.step, point.value) for point in events.Scalars("loss")] == [(3, loss)]


def test_a_resumed_run_hides_the_points_that_it_repeats(tmp_path):
    for start, value in ((0, 1.0), (2, 2.0)):
        summary = Summary(tmp_path, leads=True)
        summary.start(start)
        for step in range(start + 1, 5):
            summary.write("train", step, {"loss": value})
        summary.close()
    points = EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(point.step, point.value) for point in points] == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_processes_that_do_not_lead_write_nothing(tmp_path):
    summary = Summary(tmp_path, leads=False)
    summary.write("train", 1, REPORT)
    summary.close()
    assert list(tmp_path.iterdir()) == []


def test_a_log_file_gets_lines_with_rate_and_time_left(capsys):
    progress = Progress(100, shown=True)
    progress.start(0)
    progress.advance(1)
    progress.report(40, REPORT)
    progress.close()
    line = "step 40/100  loss 2.5000  lr 0.001  norm 0.7  12,346 tokens/s  00:30 left\n"
    assert capsys.readouterr().err == line


def test_a_terminal_gets_a_bar_and_lines_above_it(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = Progress(100, shown=True)
    progress.start(40)
    progress.advance(41)
    progress.report(41, REPORT)
    progress.say("evaluated")
    progress.close()
    shown = capsys.readouterr().err
    assert "41/100" in shown
    assert "loss 2.5000" in shown
    assert "evaluated\n" in shown


def test_processes_that_do_not_lead_are_silent(capsys):
    progress = Progress(100, shown=False)
    progress.start(0)
    progress.report(40, REPORT)
    progress.say("hello")
    assert capsys.readouterr().err == ""
