"""How long a search still takes: by what its trainings have taken, whatever lay between them."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest
from simulated import SPACE, plan

from t2t_torch.reporter import CONSOLE, JsonLinesReporter, reporting
from t2t_torch.tune.search_plan import SearchRecord, TrialRecord
from t2t_torch.tune.shared_search import SearchState
from t2t_torch.workflows.search import SearchProgress, TrialPace, summary


class Clock:
    """Shows what it is told."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def taken(searcher: SearchState, trial: int) -> None:
    new = {"hparams": {"x": trial / 10}} if trial == len(searcher.trials) else {}
    event = {"do": "take", "tuner": "t", "place": "p", "trial": trial, "to": 400, **new}
    assert searcher.apply(event)


def reported(searcher: SearchState, trial: int, do: str, step: int, seconds: float) -> None:
    event = {"do": do, "tuner": "t", "trial": trial, "step": step, "seconds": seconds, "why": ""}
    assert searcher.apply({**event, "value": 1.0, "curve": [[step, 1.0]]})


def record(searcher: SearchState, **steps: int) -> SearchRecord:
    """The record of a search whose trainings have come so far: `t0=100`."""
    trials = tuple(
        TrialRecord(
            one.number, "running" if one.status == "held" else "completed", one.hparams,
            steps.get(f"t{one.number}", one.step), 400, one.value, tuple(one.curve), one.seconds,
            "", Path(str(one.number)),
        )
        for one in searcher.trials
    )  # fmt: skip
    return SearchRecord(
        "s", "random", "loss", True, 1, (), trials, None, sum(one.seconds for one in trials), 0.0,
        False, Path(),
    )  # fmt: skip


@pytest.fixture
def searcher() -> SearchState:
    """A search of four trials of 400 steps."""
    return SearchState(plan(searcher="random", max_trials=4), SPACE)


def test_nights_between_tuners_are_not_counted(searcher: SearchState) -> None:
    taken(searcher, 0)
    reported(searcher, 0, "report", 400, 40.0)
    # A night passes; another tuner goes on.
    clock = Clock()
    pace = TrialPace(clock)
    taken(searcher, 1)
    pace.counted(searcher, record(searcher))
    clock.now += 10.0
    seen = pace.counted(searcher, record(searcher, t1=100))
    assert [one.seconds for one in seen.trials] == [40.0, 10.0] and seen.seconds == 50.0
    assert pace.seconds_left(searcher, seen) == pytest.approx(0.1 * (300 + 2 * 400))
    line = summary(searcher, seen, 110.0)
    assert line.endswith("; 50 s of training, about 1 min 50 s left")
    over = dataclasses.replace(seen, over=True)
    assert summary(searcher, over, 110.0).endswith("; 50 s of training")


def test_trainings_at_once_divide_what_is_left(searcher: SearchState) -> None:
    clock = Clock()
    pace = TrialPace(clock)
    taken(searcher, 0)
    taken(searcher, 1)
    assert pace.seconds_left(searcher, pace.counted(searcher, record(searcher))) is None
    clock.now += 20.0
    seen = pace.counted(searcher, record(searcher, t0=100, t1=100))
    assert pace.seconds_left(searcher, seen) == pytest.approx(0.2 * (600 + 800) / 2)


def test_steps_of_a_tuner_that_was_killed_have_no_seconds(searcher: SearchState) -> None:
    clock = Clock()
    pace = TrialPace(clock)
    taken(searcher, 0)
    pace.counted(searcher, record(searcher, t0=300))  # from a checkpoint, untold
    clock.now += 5.0
    seen = pace.counted(searcher, record(searcher, t0=350))
    assert pace.seconds_left(searcher, seen) == pytest.approx(0.1 * (50 + 3 * 400))
    # It breaks, and is begun again: its ledger tells the first part.
    reported(searcher, 0, "restart", 350, 5.0)
    clock.now += 7.0
    assert pace.counted(searcher, record(searcher, t0=350)).seconds == 5.0
    clock.now += 1.0
    assert pace.counted(searcher, record(searcher, t0=360)).seconds == 6.0


def test_a_line_is_written_when_something_has_changed(searcher: SearchState, capsys) -> None:
    progress = SearchProgress()
    taken(searcher, 0)
    progress.show(searcher, lambda: record(searcher), True)
    progress.show(searcher, lambda: pytest.fail("nothing is drawn"), False)
    assert capsys.readouterr().err.endswith("1 of 4 trials: 1 running; 0 s of training\n")


def test_a_terminal_shows_one_table_and_other_reporters_lines(searcher: SearchState, monkeypatch):
    terminal, lines = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    taken(searcher, 0)
    for reporter in (CONSOLE, JsonLinesReporter(lines)):
        with reporting(reporter):
            progress = SearchProgress()
            progress.show(searcher, lambda: record(searcher), True)
            progress.print_line("trial 0 starts")
            progress.end(searcher, record(searcher))
    drawn, left = terminal.getvalue().split("\x1b[3F\x1b[J")  # a summary, a header, a trial
    assert drawn.count("\n") == 3
    assert left.count("trial 0 starts") == 1 and left.endswith("; 0 s of training\n")
    assert "\x1b" not in left
    messages = [json.loads(line)["message"] for line in lines.getvalue().splitlines()]
    assert len(messages) == 3 and messages[1].endswith("  trial 0 starts")
    assert "\x1b" not in "".join(messages)
