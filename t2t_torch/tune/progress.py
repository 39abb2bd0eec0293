"""Progress of a search on a terminal: a table that is redrawn, or plain lines."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from typing import TextIO

from t2t_torch.reports.section import cut, pad, width
from t2t_torch.tune.search_record import SearchRecord, TrialRecord, duration
from t2t_torch.tune.searcher import Searcher, TrialState

# Speed of a search, and its remaining time.


@dataclasses.dataclass
class _Running:
    """Running training: when it was first seen, and its state at that time."""

    reported: float
    since: float
    step: int


class Pace:
    """Training time and steps, excluding time without running trainings.

    The trial history contains the training time of completed trainings.  The time and steps of a
    running training are counted from when it was first seen.

    Args:
      clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, _Running] = {}

    def counted(self, searcher: Searcher, record: SearchRecord) -> SearchRecord:
        """Returns the record, including the seconds of running trainings."""
        now = self._clock()
        trials = tuple(
            dataclasses.replace(one, seconds=one.seconds + self._seen(state, one, now))
            for state, one in zip(searcher.trials, record.trials, strict=True)
        )
        seconds = sum(one.seconds for one in trials)
        return dataclasses.replace(record, trials=trials, seconds=seconds)

    def _seen(self, state: TrialState, trial: TrialRecord, now: float) -> float:
        """Returns the seconds of a trial that are not yet in the trial history."""
        if state.status != "held":
            self._held.pop(state.number, None)
            return 0.0
        held = self._held.get(state.number)
        if held is None or held.reported != state.seconds:  # another training of the trial
            held = self._held[state.number] = _Running(state.seconds, now, trial.step)
        return now - held.since

    def seconds_left(self, searcher: Searcher, record: SearchRecord) -> float | None:
        """Returns the estimated remaining seconds of a search; None if its speed is unknown.

        Remaining work is counted in steps: of running trials, up to their next rung; of trials yet
        to start, the mean of the finished ones.  The current number of concurrent trainings is
        assumed to stay the same.

        Args:
          searcher: state of the search.
          record: result of `counted`.
        """
        done = sum(self._steps(state, record) for state in searcher.trials)
        if not done or record.seconds <= 0:
            return None
        over = [trial.step for trial in searcher.valid if trial.is_over]
        active = [trial for trial in searcher.valid if not trial.is_over]
        known = {trial.number: trial.step for trial in record.trials}
        mean = (sum(over) + _expected(searcher)) / (len(over) + 1)
        left = float(sum(max(trial.target - known[trial.number], 0) for trial in active))
        if searcher.will_start:
            left += mean * (searcher.plan.max_trials - len(searcher.valid))
        at_once = max(sum(trial.status == "held" for trial in searcher.trials), 1)
        return record.seconds * left / done / at_once

    def _steps(self, state: TrialState, record: SearchRecord) -> int:
        """Returns the number of steps covered by the counted seconds."""
        held = self._held.get(state.number)
        return state.step + (record.trials[state.number].step - held.step if held else 0)


def _expected(searcher: Searcher) -> float:
    """Returns the expected steps of a trial if one in `divisor` trials continues at each rung."""
    total, divisor = 0.0, searcher.plan.divisor
    for bracket in searcher.brackets:
        steps = [0, *bracket.lengths]
        parts = zip(steps[1:], steps, strict=False)
        total += bracket.trials * sum(
            (to - from_) / divisor**place for place, (to, from_) in enumerate(parts)
        )
    return total / sum(bracket.trials for bracket in searcher.brackets)


_DRAW_SECONDS = 1.0
_MOST_ROWS = 30


def summary(searcher: Searcher, record: SearchRecord, left: float | None = None) -> str:
    """Returns a line with the progress of a search and its remaining time in seconds."""
    counts = [f"{number} {state}" for state, number in record.counts.items()]
    parts = [f"{len(searcher.valid)} of {searcher.plan.max_trials} trials: {', '.join(counts)}"]
    best = record.best
    if best is not None and best.value is not None:
        parts.append(
            f"best is trial {best.number}: {record.metric} {best.value:.5g} at step "
            f"{best.evaluated:,}"
        )
    parts.append(f"{duration(record.seconds)} of training")
    if left is not None and not record.over:
        parts[-1] += f", about {duration(left)} left"
    return "; ".join(parts)


def rows(record: SearchRecord, columns: int) -> list[str]:
    """Returns the table of trials with its header, in lines of at most `columns` characters."""
    searched = [axis.name for axis in record.space if axis.kind != "const"]
    best = record.best
    head = ["trial", "state", "step", record.metric, "time", "hyperparameters"]
    cells = [head]
    for trial in sorted(record.trials, key=lambda one: _order(record, one)):
        mark = "*" if best is not None and trial.number == best.number else ""
        unchanged = record.default is not None and trial.number == record.default.number
        values = "the unchanged set" if unchanged else _values(trial, searched)
        if trial.error:
            values = f"{trial.error}  {values}"
        cells.append(
            [
                f"{mark}{trial.number}",
                trial.state,
                f"{trial.step:,}/{trial.length:,}",
                "" if trial.value is None else f"{trial.value:.5g}",
                duration(trial.seconds) if trial.seconds else "",
                values,
            ]
        )
    widths = [max(width(row[place]) for row in cells) for place in range(len(head) - 1)]
    made = []
    for row in cells:
        fixed = [
            pad(cell, wide, right=place != 1)
            for place, (cell, wide) in enumerate(zip(row[:-1], widths, strict=True))
        ]
        line = "  ".join([*fixed, row[-1].replace("\n", " ")]).rstrip()
        made.append(cut(line, columns) if columns else line)
    return made


def _order(record: SearchRecord, trial: TrialRecord) -> tuple[int, int, float, int]:
    """Sort key: running trials first, then by step reached, then by value."""
    running = 0 if trial.state in ("running", "paused") else 1
    failed = trial.state == "failed"
    evaluated = 0 if failed else trial.evaluated
    return running, -evaluated, record.loss_of(trial.value), trial.number


def _values(trial: TrialRecord, names: list[str]) -> str:
    values = ((name, trial.hparams[name]) for name in names if name in trial.hparams)
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values
    )


class Progress:
    """Progress display of a running search.

    On a terminal the table is redrawn in place below the messages; otherwise each line is written
    once, with its time.

    Args:
      stream: output stream, usually standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._pace = Pace()
        self._drawn = 0
        self._last = -_DRAW_SECONDS

    def print_line(self, line: str) -> None:
        """Writes a permanent line."""
        self._erase()
        self._stream.write(f"{time.strftime('%H:%M:%S')}  {line}\n")
        self._stream.flush()

    def show(self, searcher: Searcher, record: Callable[[], SearchRecord], changed: bool) -> None:
        """Updates the display: on a terminal each second, otherwise on each change.

        Args:
          searcher: state of the search.
          record: function that creates the record, called only when needed.
          changed: whether a trial has started or ended.
        """
        if not self._is_terminal:
            if changed:
                self.print_line(self._summary(searcher, self._pace.counted(searcher, record())))
            return
        now = time.monotonic()
        if not changed and now - self._last < _DRAW_SECONDS:
            return
        self._last = now
        seen = self._pace.counted(searcher, record())
        size = shutil.get_terminal_size()
        lines = [cut(self._summary(searcher, seen), size.columns - 1)]
        room = min(_MOST_ROWS, size.lines - 3)
        lines += rows(seen, size.columns - 1)[: max(room, 1)]
        self._erase()
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()
        self._drawn = len(lines)

    def end(self, searcher: Searcher, record: SearchRecord) -> None:
        """Writes the complete final table."""
        self._erase()
        columns = shutil.get_terminal_size().columns - 1 if self._is_terminal else 0
        lines = [*rows(record, columns), summary(searcher, record)]
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()

    def _summary(self, searcher: Searcher, record: SearchRecord) -> str:
        return summary(searcher, record, self._pace.seconds_left(searcher, record))

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
