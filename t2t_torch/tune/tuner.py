"""A tuner process: claims trials of a search, trains them and reports the results."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from t2t_torch.atomic_files import is_locked, staged, write_text
from t2t_torch.errors import EXIT_CODE, NOT_FINITE_CODE, T2TError, UsageError
from t2t_torch.executor import environment, parent_follower
from t2t_torch.files import open_regular
from t2t_torch.signals import StopRequest
from t2t_torch.tune import shared_search
from t2t_torch.tune.search_plan import SearchRecord, TrialRecord
from t2t_torch.tune.search_target import SearchTarget
from t2t_torch.tune.shared_search import SearchTask
from t2t_torch.tune.study import Heartbeat

TRAINER = (sys.executable, "-m", "t2t_torch.bin.trainer")
"""Command of the trainer."""

LOG = "tuner.log"
"""Log file in the run directory, with the output of all its training processes."""

INVALID_HP_CODE = 3
"""Exit code of a training process that rejects its hyperparameters as invalid."""

_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT)
_LAST_BYTES = 4096
_MAX_ERROR_LENGTH = 500  # maximum length of an error message, in characters

Ending = Literal["done", "refused", "invalid", "diverged", "stopped", "broken"]
"""done: reached its rung; refused: user error; invalid: INVALID_HP; diverged: non-finite loss;
stopped: terminated by a signal after saving; broken: killed, or failed with an error in its
code."""

_ENDINGS: dict[int, Ending] = {
    0: "done",
    EXIT_CODE: "refused",
    INVALID_HP_CODE: "invalid",
    NOT_FINITE_CODE: "diverged",
}


@dataclasses.dataclass(frozen=True)
class TrainingOutcome:
    """TrainingOutcome of a training process.

    Attributes:
      ending: see `Ending`.
      code: exit code of the process; negative: number of the signal that killed it.
      why: last error output; empty if it is done.
    """

    ending: Ending
    code: int
    why: str


@dataclasses.dataclass
class Training:
    """A training process of a search, which pauses at a rung; or another command of a run.

    Attributes:
      command: complete command line.
      directory: run directory.
      environment: additional environment variables.
      log: name of the log file in the directory.
      niceness: priority of the process, as of `nice`; 19 is the lowest, 0 the caller's.
    """

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    log: str = LOG
    niceness: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _began: float = 0.0
    _is_stopping: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began if self._process is not None else 0.0

    @property
    def has_started(self) -> bool:
        """True if the process was started."""
        return self._process is not None

    def start(self) -> bool:
        """Starts the process, unless a process of a killed tuner is still saving in the directory.

        Returns:
          Whether it is running.
        """
        if self._process is not None:
            return True
        self.directory.mkdir(parents=True, exist_ok=True)
        if is_locked(self.directory / "train.lock"):
            return False
        with (self.directory / self.log).open("ab") as log:
            log.write(f"$ {' '.join(self.command)}\n".encode())
            log.flush()
            # New session: Ctrl-C only reaches the tuner, which then requests one graceful stop.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=parent_follower(),
            )
        if self.niceness:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, self.niceness)
        self._began = time.monotonic()
        return True

    def outcome(self) -> TrainingOutcome | None:
        """Returns the outcome; None while it is running."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        ending = "stopped" if code in _STOPPED else _ENDINGS.get(code, "broken")
        return TrainingOutcome(
            ending, code, "" if code == 0 else _why(self.directory / self.log, code)
        )

    def request_stop(self) -> None:
        """Requests a save and exit; repeated calls have no effect."""
        if self._process is not None and not self._is_stopping:
            self._is_stopping = True
            self._process.terminate()

    def kill(self) -> None:
        """Kills the process; the trial will resume from its latest checkpoint."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _why(file: Path, code: int) -> str:
    """Returns the last error output of a training process."""
    status = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    with open_regular(file) as log:
        log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        lines = log.read().decode(errors="replace").splitlines()
    start = max((n for n, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    lines = [line.strip() for line in lines[start + 1 :] if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    words = " ".join(lines[errors[-1] :]) if errors and code > 0 else "".join(lines[-1:])
    return f"{status}: {words[:_MAX_ERROR_LENGTH]}" if words else status


_POLL_SECONDS = 0.05  # polling interval of the processes
_SYNC_SECONDS = 1.0  # polling interval of the trial history when idle
_STOP_SECONDS = 120.0  # timeout for trainings to save
_REFUSED_IN_A_ROW = 3


@dataclasses.dataclass
class _Slot:
    """A running training and its state."""

    task: SearchTask
    training: Training
    broke_at: tuple[int, int] = (-1, 0)
    """Step and exit code of the last failure."""
    waits: bool = False
    """Whether the user has seen that it waits."""


@dataclasses.dataclass
class Tuner:
    """Runs a search, or a part of it; tuners of the same search may have other settings.

    Attributes:
      search: search that has been started.
      target: target of the search.
      heartbeat: heartbeat of this tuner, already entered.
      output_dir: directory of the search.
      parallel: number of concurrent trainings.
      max_restarts: maximum number of restarts of a failed training from its checkpoint.
      command: command of the trainer.
      stop: stop request set by a signal.
      print_line: callback that prints a line.
      show: callback that updates the progress display; its argument is True if a trial has started
        or ended.
    """

    search: shared_search.SharedSearch
    target: SearchTarget
    heartbeat: Heartbeat
    output_dir: Path
    _: dataclasses.KW_ONLY
    parallel: int = 1
    max_restarts: int = 5
    command: Sequence[str] = TRAINER
    stop: StopRequest
    print_line: Callable[[str], None]
    show: Callable[[bool], None]
    _slots: dict[int, _Slot] = dataclasses.field(default_factory=dict)
    _last_sync: float = 0.0

    @property
    def _metric(self) -> str:
        return self.search.searcher.plan.metric

    def run(self) -> None:
        """Runs until the search is over or a signal requests a stop.

        Raises:
          UsageError: no training can succeed: the metric is unknown, or all trainings are refused.
        """
        try:
            while not self.stop:
                changed = self._finish()
                changed = self._fill() or changed
                if not self._slots and self.search.searcher.is_over:
                    return
                for slot in self._slots.values():
                    if not slot.training.start() and not slot.waits:
                        slot.waits, where = True, slot.training.directory
                        what = f"trial {slot.task.trial} waits for the process that trains in"
                        self.print_line(f"{what} {where} to end")
                self.heartbeat.beat()
                self.show(changed)
                time.sleep(_POLL_SECONDS)
        finally:
            self._leave()

    def _fill(self) -> bool:
        """Syncs with other tuners and claims available tasks; returns True if it claimed any."""
        taken = False
        if time.monotonic() - self._last_sync < _SYNC_SECONDS:
            return False
        self._sync()
        while len(self._slots) < self.parallel:
            if taken:
                self._sync()
            task = self.search.take(self.heartbeat)
            if task is None:
                break
            number = next(n for n in range(self.parallel) if n not in self._slots)
            self._slots[number] = _Slot(task, self._training(task, number))
            begins = "starts" if task.is_new else "resumes"
            unchanged = ", the unchanged set" if task.is_default and task.is_new else ""
            self.print_line(f"trial {task.trial}{unchanged} {begins}: to step {task.to:,}")
            taken = True
        return taken

    def _sync(self) -> None:
        """Applies new entries of the search, and frees the trials of dead tuners."""
        self._last_sync = time.monotonic()
        self.search.sync()
        for lost in self.search.free_lost(self.heartbeat):
            self.print_line(f"trial {lost.number} has lost its tuner")

    def directory(self, trial: int) -> Path:
        """Returns the run directory of a trial."""
        return shared_search.trial_directory(self.output_dir, trial)

    def _training(self, task: SearchTask, slot: int) -> Training:
        plan = self.search.searcher.plan
        directory = self.directory(task.trial)
        command = [
            *self.command,
            *self.target.arguments({} if task.is_default else task.hparams),
            f"--output_dir={directory}",
            f"--train_steps={plan.length}",
            f"--pause_at_step={task.to}",
            f"--random_seed={plan.seed}",
        ]
        return Training(command, directory, environment(slot, self.parallel))

    def _finish(self) -> bool:
        """Reports the trainings that have ended; returns True if there were any."""
        ended = False
        for number, slot in list(self._slots.items()):
            if (outcome := slot.training.outcome()) is not None:
                ended = True
                self._last_sync = 0.0  # new tasks may be available immediately
                if not self._restart(number, slot, outcome):
                    del self._slots[number]
                    self._conclude(slot, outcome)
        return ended

    def _conclude(self, slot: _Slot, outcome: TrainingOutcome) -> None:
        """Reports the outcome of a training that is not restarted."""
        trial = slot.task.trial
        try:
            seen = shared_search.read_evaluations(self.directory(trial), self._metric)
        except UsageError:
            self._add(slot, "leave", shared_search.Evaluations(0, ()))
            raise
        reached, to = seen.newest[0] if seen.newest else 0, slot.task.to
        if outcome.ending == "done" and reached < to:
            why = f"its last evaluation is of step {reached:,}, and step {to:,} was requested"
            why = why if seen.newest else "it ended without an evaluation"
            outcome = TrainingOutcome("broken", 0, why)
        if outcome.ending == "done":
            self._report(slot, seen)
        elif outcome.ending == "invalid":
            self.print_line(f"trial {trial}: invalid hyperparameters, another takes its place")
            self._add(slot, "invalid", seen, why=outcome.why)
        elif outcome.ending == "refused" and slot.task.is_default and not self._any_value():
            # Not specific to this trial: every training would fail.
            self._add(slot, "leave", seen)
            raise UsageError(
                f"the unchanged set does not train: {_without_code(outcome.why)}\n"
                f"All that it has said: {self.directory(trial)}/tuner.log"
            )
        else:
            self.print_line(f"trial {trial} failed: {outcome.why}")
            self._add(slot, "fail", seen, why=outcome.why)
            self._check_that_any_trains(outcome)

    def _report(self, slot: _Slot, seen: shared_search.Evaluations) -> None:
        assert seen.newest is not None
        step, value = seen.newest
        self._add(slot, "report", seen, value=value)
        trial = self.search.searcher.trials[slot.task.trial]
        then = {"free": "is promoted", "completed": "is complete"}.get(trial.status, trial.status)
        value_text = "not finite" if value is None else f"{value:.5g}"
        self.print_line(
            f"trial {trial.number} {then}: {self._metric} {value_text} at step {step:,}"
        )

    def _restart(self, number: int, slot: _Slot, outcome: TrainingOutcome) -> bool:
        """Restarts a failed training from its checkpoint, unless that is futile."""
        if outcome.ending not in ("broken", "stopped"):
            return False
        trial = self.search.searcher.trials[slot.task.trial]
        seen = _seen(self.directory(trial.number), self._metric)
        same = outcome.code > 0 and slot.broke_at == (seen.step, outcome.code)
        if same or trial.restarts >= self.max_restarts:
            return False
        self._add(slot, "restart", seen, why=outcome.why, restart=trial.restarts + 1)
        self.print_line(
            f"trial {trial.number} failed and resumes from its checkpoint: {outcome.why}"
        )
        slot.broke_at = seen.step, outcome.code
        slot.training = self._training(slot.task, number)
        return True

    def _check_that_any_trains(self, outcome: TrainingOutcome) -> None:
        failed = [one for one in self.search.searcher.trials if one.status == "failed"]
        is_refused = outcome.ending == "refused" and not self._any_value()
        if is_refused and len(failed) >= _REFUSED_IN_A_ROW:
            raise UsageError(
                f"the first {len(failed)} trials all failed, the last one so: "
                f"{_without_code(outcome.why)}"
            )

    def _any_value(self) -> bool:
        return any(trial.curve for trial in self.search.searcher.trials)

    def _add(self, slot: _Slot, do: str, seen: shared_search.Evaluations, **more: object) -> None:
        trial = self.search.searcher.trials[slot.task.trial]
        known = dict(trial.curve)
        curve = [[step, value] for step, value in seen.curve if (step not in known)]
        step, seconds = seen.step, round(slot.training.seconds, 2)
        entry = {"step": step, "curve": curve, "seconds": seconds, **more}
        if not self.search.report(self.heartbeat, do, trial.number, **entry):
            self.print_line(f"trial {trial.number} was taken over by another tuner")

    def _leave(self) -> None:
        """Stops the trainings and returns their trials to the search."""
        for slot in self._slots.values():
            slot.training.request_stop()
        if any(slot.training.has_started for slot in self._slots.values()):
            self.print_line("the trainings save and end; the same command resumes them")
        until = time.monotonic() + _STOP_SECONDS
        for number, slot in list(self._slots.items()):
            while slot.training.has_started and slot.training.outcome() is None:
                if time.monotonic() > until:
                    slot.training.kill()
                time.sleep(_POLL_SECONDS)
            del self._slots[number]
            directory = self.directory(slot.task.trial)
            try:
                self._add(slot, "leave", _seen(directory, self._metric))
            except T2TError as error:  # other tuners will notice that this one has ended
                self.print_line(f"trial {slot.task.trial} was not handed back: {error}")


def _seen(directory: Path, metric: str) -> shared_search.Evaluations:
    """Returns the evaluations of a run; empty if it has no such metric."""
    try:
        return shared_search.read_evaluations(directory, metric)
    except UsageError:
        return shared_search.Evaluations(0, ())


def _without_code(why: str) -> str:
    return why.partition(": ")[2].removeprefix("error: ") or why


RECORD = "search.json"
PAGE = "search.html"
BEST = "best"


def check_any_value(record: SearchRecord) -> None:
    """Checks that a finished search has a result.

    Raises:
      T2TError: no trial has a value; names the most frequent reason.
    """
    if record.best is not None or not record.trials:
        return
    reasons = [trial.error or "the metric was not finite" for trial in record.trials]
    why, count = Counter(reasons).most_common(1)[0]
    log = record.trials[reasons.index(why)].output_dir / LOG
    raise T2TError(
        f"no trial has come to its end with a value of {record.metric}; {count} of {len(reasons)} "
        f"ended so: {why}\nAll that the first of them has said: {log}\nFix it, and start again in "
        "another --output_dir."
    )


def write_outcome(record: SearchRecord, where: Callable[[int], str]) -> list[str]:
    """Writes the output files of a search.

    Args:
      record: record of a search, finished or not.
      where: function that returns the machine and folder of a trial trained elsewhere; empty if
        unknown.

    Returns:
      Lines for the user: results and the locations of the files.
    """
    from t2t_torch.tune.findings import write_findings
    from t2t_torch.tune.search_page import search_page

    directory = record.output_dir
    write_text(directory / RECORD, record.to_json())
    write_text(directory / PAGE, search_page(record))
    lines = [write_findings(record, directory), "", f"All of it, to look at: {directory / PAGE}"]
    if record.best is not None:
        lines.append(_best_run_line(directory / BEST, record.best, where))
    return lines


def _best_run_line(link: Path, best: TrialRecord, where: Callable[[int], str]) -> str:
    """Links to the best run if it is local; returns a line with its location."""
    if best.output_dir.is_dir():
        replace_link(link, best.output_dir)
        return f"The best run, to decode, export or serve: {link}"
    link.unlink(missing_ok=True)  # outdated link
    location = where(best.number) or "another --output_dir of this search"
    name = best.output_dir.relative_to(link.parent)
    return f"The best run, {name}, is not here. It was trained in {location}"


def replace_link(link: Path, target: Path) -> None:
    """Creates a relative link and moves it into place: a link exists at all times."""
    with staged(link) as temporary:
        temporary.symlink_to(os.path.relpath(target, link.parent))
