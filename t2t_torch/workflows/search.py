"""Hyperparameter search over the trainings of a problem, or of a trial; its progress."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import remote
from t2t_torch.atomic_files import write_text
from t2t_torch.errors import DataError, UsageError
from t2t_torch.executor import map_ranks
from t2t_torch.reporter import CONSOLE, Reporter, current, message, output
from t2t_torch.reports.section import aligned, cut
from t2t_torch.settings import require
from t2t_torch.signals import StopRequest
from t2t_torch.trust import running
from t2t_torch.tune.search_plan import SearchRecord, TrialRecord, duration
from t2t_torch.workflows.run_kind import requested_kind
from t2t_torch.workflows.search_settings import (
    RequestedSearch,
    SearchSettings,
    command,
    recall,
    remember,
    requested_search,
    study_name,
)

if TYPE_CHECKING:
    from t2t_torch.tune.shared_search import SearchState, SearchTrial, SharedSearch


_PAGE_SECONDS = 30.0
"""Interval at which the page is written during a search."""


def search(
    settings: SearchSettings, *, reporter: Reporter | None = None, stop: StopRequest | None = None
) -> SearchRecord:
    """Starts, resumes or joins a search; reports its results and writes them to its folder.

    Args:
      settings: the settings; a resumed search takes others than given from its start.
      reporter: where the progress and the results are reported; None: to the current one.
      stop: request to stop: the trainings save, and the search can be resumed.

    Returns:
      The state of the search, which may have been stopped before its end.

    Raises:
      T2TError: a setting does not fit, the folder has another search, or no training succeeds.
    """
    from t2t_torch.tune.shared_search import record_of

    with running(settings, reporter):
        needed = () if settings.output_dir else requested_kind(settings).needed_by_search
        require(settings, *needed, "output_dir")
        output_dir = Path(str(settings.output_dir)).absolute()
        settings, known_steps = recall(settings, output_dir)
        if settings.has_runner() and settings.storage:
            # Its password would be written to a file.
            raise UsageError("--storage does not go with --runner: tuners share --output_dir.")
    with running(settings, reporter):  # with the users' folders that it has taken from its start
        request = None if settings.report_only else requested_search(settings, known_steps)
        shared = _open(settings, output_dir)
        words, trial = command(settings, output_dir), settings.trial or ""
        record = functools.partial(record_of, shared, output_dir, command=words, trial=trial)
        if request is None:
            shared.sync()
            return _report(shared, record())
        stop = StopRequest() if stop is None else stop
        with remote.locked(output_dir / "search.lock"):
            return _run(settings, output_dir, request, shared, record, stop)


def _open(settings: SearchSettings, output_dir: Path) -> SharedSearch:
    """Opens the search of this folder, or creates an empty one.

    Raises:
      UsageError: `report_only`, and there is no folder.
      DataError: `report_only`, and there is no search.
    """
    from t2t_torch.tune.shared_search import NO_SEARCH, SharedSearch
    from t2t_torch.tune.study import JOURNAL, TrialHistory, open_storage

    looks, name = settings.report_only, study_name(settings, output_dir)
    if looks and not output_dir.is_dir():
        raise UsageError(f"--output_dir={output_dir} is not there: no search to report on.")
    if looks and not settings.storage and not (output_dir / JOURNAL).exists():
        raise DataError(NO_SEARCH)
    output_dir.mkdir(parents=True, exist_ok=True)
    storage = open_storage(output_dir, settings.storage or "")
    if looks and not TrialHistory.is_in(storage, name):
        raise DataError(NO_SEARCH)
    return SharedSearch(TrialHistory(storage, name))


def _run(
    settings: SearchSettings,
    output_dir: Path,
    request: RequestedSearch,
    shared: SharedSearch,
    record: Callable[[], SearchRecord],
    stop: StopRequest,
) -> SearchRecord:
    """Trains trials until the search is over or stopped; reports and returns its record."""
    request.subject.check_data()
    shared.begin(request.plan, request.space, request.subject.identity())
    from t2t_torch.tune.search_page import search_page
    from t2t_torch.tune.shared_search import claim_runs, publish
    from t2t_torch.tune.study import Heartbeat
    from t2t_torch.tune.tuner import PAGE, TRAINER, Tuner, check_any_value

    if (old := claim_runs(output_dir, shared.id)) is not None:
        message(f"runs of another search are now in {old}")
    remember(settings, output_dir, request.steps_of)
    if settings.runner:
        try:
            _run_ranks(settings, output_dir, stop)
        finally:
            shared.sync()
            result = record()
            publish(shared.history, shared.searcher)
            _report(shared, result)
        check_any_value(result)
        return result
    progress, written = SearchProgress(), -_PAGE_SECONDS

    def show(changed: bool) -> None:
        nonlocal written
        progress.show(shared.searcher, record, changed)
        if time.monotonic() - written >= _PAGE_SECONDS:
            written = time.monotonic()
            publish(shared.history, shared.searcher)
            write_text(output_dir / PAGE, search_page(record()))

    trainer = (*TRAINER, "--trust_code") if settings.trust_code else TRAINER
    given: Any = {"parallel": settings.parallel, "max_restarts": request.max_restarts}
    given |= {"command": trainer, "stop": stop, "print_line": progress.print_line, "show": show}
    with stop, Heartbeat(output_dir, shared.history, beats=bool(settings.storage)) as alive:
        tuner = Tuner(shared, request.subject, alive, output_dir, **given)
        try:
            tuner.run()
        finally:
            shared.sync()
            result = record()
            progress.end(shared.searcher, result)
            publish(shared.history, shared.searcher)
            _report(shared, result)
    if result.over and not stop:
        check_any_value(result)
    return result


def _run_ranks(settings: SearchSettings, output_dir: Path, stop: StopRequest) -> None:
    """Runs tuners as ranks of an executor, which join the search and train one trial at a time.

    A tuner that dies is the end of the command, but of no trial: others continue it.

    Raises:
      T2TError: of a tuner, or one died.
    """
    given = {name: getattr(settings, name) for name in ("max_restarts", "trust_code")}
    given |= {"output_dir": str(output_dir)}
    with settings.executor() as executor, stop.as_exception():
        function = f"{__name__}:search_rank"
        map_ranks(executor, function, given, settings.parallel, output_dir / "ranks")
    shutil.rmtree(output_dir / "ranks")


def search_rank(settings: Mapping[str, Any], rank: int, count: int) -> None:
    """Joins a search with one training at a time, in a process of an executor."""
    search(SearchSettings(**settings))


def _report(shared: SharedSearch, result: SearchRecord) -> SearchRecord:
    """Writes, reports and returns the results; reports why the search ended early."""
    from t2t_torch.tune.tuner import write_outcome

    for line in write_outcome(result, shared.whereabouts):
        output(line)
    if why := shared.searcher.why_early:
        output(f"The search is over: {why}.")
    return result


@dataclasses.dataclass
class _Running:
    """Running training: when it was first seen, and its state at that time."""

    reported: float
    since: float
    step: int


class TrialPace:
    """Training time and steps, excluding time without running trainings.

    The trial history contains the training time of completed trainings.  The time and steps of a
    running training are counted from when it was first seen.

    Args:
      clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, _Running] = {}

    def counted(self, searcher: SearchState, record: SearchRecord) -> SearchRecord:
        """Returns the record, including the seconds of running trainings."""
        now = self._clock()
        trials = tuple(
            dataclasses.replace(one, seconds=one.seconds + self._seen(state, one, now))
            for state, one in zip(searcher.trials, record.trials, strict=True)
        )
        seconds = sum(one.seconds for one in trials)
        return dataclasses.replace(record, trials=trials, seconds=seconds)

    def _seen(self, state: SearchTrial, trial: TrialRecord, now: float) -> float:
        """Returns the seconds of a trial that are not yet in the trial history."""
        if state.status != "held":
            self._held.pop(state.number, None)
            return 0.0
        held = self._held.get(state.number)
        if held is None or held.reported != state.seconds:  # another training of the trial
            held = self._held[state.number] = _Running(state.seconds, now, trial.step)
        return now - held.since

    def seconds_left(self, searcher: SearchState, record: SearchRecord) -> float | None:
        """Returns the estimated remaining seconds of a search; None if its speed is unknown.

        Remaining work is counted in steps: of running trials, up to their next rung; of trials yet
        to start, the mean of the finished ones.  The current number of concurrent trainings is
        assumed to stay the same.

        Args:
          searcher: state of the search.
          record: result of `counted`.
        """
        done = 0  # steps that the counted seconds cover
        for state in searcher.trials:
            held = self._held.get(state.number)
            done += state.step + (record.trials[state.number].step - held.step if held else 0)
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


def _expected(searcher: SearchState) -> float:
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


def summary(searcher: SearchState, record: SearchRecord, left: float | None = None) -> str:
    """Returns a line with the progress of a search and its remaining time in seconds."""
    counts = [f"{number} {state}" for state, number in record.counts.items()]
    parts = [f"{len(searcher.valid)} of {searcher.plan.max_trials} trials: {', '.join(counts)}"]
    if (best := record.best) is not None and best.value is not None:
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
    cells = [["trial", "state", "step", record.metric, "time", "hyperparameters"]]
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
                values.replace("\n", " "),
            ]
        )
    return [cut(line, columns) if columns else line for line in aligned(cells, (1, 5))]


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


class SearchProgress:
    """Progress display of a running search.

    On a terminal the table is redrawn in place below the messages; otherwise each line is reported
    once, with its time.
    """

    def __init__(self) -> None:
        draws = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._is_terminal = draws and current() is CONSOLE
        self._pace = TrialPace()
        self._drawn = 0
        self._last = -_DRAW_SECONDS

    def print_line(self, line: str) -> None:
        """Reports a permanent line."""
        self._report(f"{time.strftime('%H:%M:%S')}  {line}")

    def show(
        self, searcher: SearchState, record: Callable[[], SearchRecord], changed: bool
    ) -> None:
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
        self._report(*lines)
        self._drawn = len(lines)

    def end(self, searcher: SearchState, record: SearchRecord) -> None:
        """Reports the complete final table."""
        columns = shutil.get_terminal_size().columns - 1 if self._is_terminal else 0
        self._report(*rows(record, columns), summary(searcher, record))

    def _summary(self, searcher: SearchState, record: SearchRecord) -> str:
        return summary(searcher, record, self._pace.seconds_left(searcher, record))

    def _report(self, *lines: str) -> None:
        """Reports lines in place of those that are drawn."""
        erase = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._drawn = 0
        message(erase + "\n".join(lines))
