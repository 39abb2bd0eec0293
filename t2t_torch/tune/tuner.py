"""One tuner: takes what is to be done from the search, trains it, and tells what came of it."""

from __future__ import annotations

import ctypes
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

from t2t_torch.errors import EXIT_CODE, NOT_FINITE_CODE, T2TError, UsageError
from t2t_torch.files import is_locked, write_text
from t2t_torch.train.stopping import StopRequest
from t2t_torch.tune.search_record import SearchRecord, TrialRecord
from t2t_torch.tune.search_target import SearchTarget
from t2t_torch.tune.searcher import Task
from t2t_torch.tune.shared_search import (
    Evaluations,
    SharedSearch,
    read_evaluations,
    trial_directory,
)
from t2t_torch.tune.study import Heartbeat

# One training of a search: a process of t2t-trainer, which pauses at a rung.


TRAINER = (sys.executable, "-m", "t2t_torch.bin.trainer")
"""The command that trains."""

LOG = "tuner.log"
"""In the run directory: what the trainings have printed, one after another."""

INVALID_HP_CODE = 3
"""Exit code of a training whose hyperparameters are invalid by its own word."""

_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT)
_LAST_BYTES = 4096
_MOST_TOLD = 500  # characters of an error

Ending = Literal["done", "refused", "invalid", "diverged", "stopped", "broken"]
"""done: at its rung; refused: an error of the user's; invalid: INVALID_HP; diverged: its loss is
not finite any more; stopped: by a signal that let it save; broken: killed, or by an error of its
code."""

_ENDINGS: dict[int, Ending] = {
    0: "done",
    EXIT_CODE: "refused",
    INVALID_HP_CODE: "invalid",
    NOT_FINITE_CODE: "diverged",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a training's process.

    Attributes:
      ending: see `Ending`.
      code: of the process; below 0 the signal that has killed it.
      why: its last words; empty if it is done.
    """

    ending: Ending
    code: int
    why: str


class Training:
    """A process that trains.

    Args:
      trial: its number.
      command: the whole of it.
      directory: the run directory.
      environment: what is added to this process's own.
    """

    def __init__(
        self, trial: int, command: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.trial = trial
        self.directory = directory
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._created = time.monotonic()
        self._began = 0.0
        self._asked = 0.0

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began if self._process is not None else 0.0

    @property
    def waits(self) -> str:
        """Reason why it cannot be started yet; empty if it runs."""
        if self._process is not None:
            return ""
        return f"for the process that trains in {self.directory} to end"

    def start(self) -> bool:
        """Starts it, unless a process of a tuner that was killed still saves there.

        Returns:
          Whether it runs.
        """
        if self._process is not None:
            return True
        self.directory.mkdir(parents=True, exist_ok=True)
        if is_locked(self.directory / "train.lock"):
            return False
        with (self.directory / LOG).open("ab") as log:
            log.write(f"$ {' '.join(self._command)}\n".encode())
            log.flush()
            # A session of its own: Ctrl-C is the tuner's alone, which then asks once.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
                preexec_fn=_follow_parent if _PRCTL is not None else None,
            )
        self._began = time.monotonic()
        return True

    def outcome(self) -> Outcome | None:
        """Returns how it has ended; None if it has not."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        ending = "stopped" if code in _STOPPED else _ENDINGS.get(code, "broken")
        return Outcome(ending, code, "" if code == 0 else _why(self.directory, code))

    def ask_to_stop(self) -> None:
        """Asks it to save and end; a second call does nothing."""
        if self._process is not None and not self._asked:
            self._asked = time.monotonic()
            self._process.terminate()

    def kill(self) -> None:
        """Ends it at once; it will go on from its last checkpoint."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _load_prctl() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return library if hasattr(library, "prctl") else None
    except OSError:
        return None


_PRCTL = _load_prctl()
_PR_SET_PDEATHSIG = 1


def _follow_parent() -> None:
    """Makes the new process receive SIGTERM when the tuner is killed."""
    assert _PRCTL is not None
    _PRCTL.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _why(directory: Path, code: int) -> str:
    """Returns the last words of a training."""
    told = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    with (directory / LOG).open("rb") as log:
        log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        lines = log.read().decode(errors="replace").splitlines()
    begun = max((n for n, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    lines = [line.strip() for line in lines[begun + 1 :] if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    words = " ".join(lines[errors[-1] :]) if errors and code > 0 else "".join(lines[-1:])
    return f"{told}: {words[:_MOST_TOLD]}" if words else told


# What each of several trainings on one machine gets of it: threads, and a GPU if there are any.


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def environment(slot: int, parallel: int) -> dict[str, str]:
    """Returns what is added to the environment of the training in a slot.

    What the user has set stays: OMP_NUM_THREADS, and which GPUs CUDA_VISIBLE_DEVICES names.

    Args:
      slot: from 0.
      parallel: how many slots there are.
    """
    threads = str(max(_cores() // parallel, 1))
    added = {name: threads for name in _THREADS if name not in os.environ}
    devices = _devices()
    if devices:
        added["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return added


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _devices() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for device in named.split(",") if device]
    found = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    return [str(number) for number in range(found)]


_LOOK_SECONDS = 0.05  # at the processes
_ASK_SECONDS = 1.0  # the ledger, where there is nothing to do
_STOP_SECONDS = 120.0  # for trainings to save
_REFUSED_IN_A_ROW = 3


@dataclasses.dataclass(frozen=True)
class TunerConfig:
    """Settings of one tuner; another one of the same search may have others.

    Attributes:
      output_dir: of the search.
      parallel: trainings at once.
      max_restarts: how often a training that breaks is begun again from its checkpoint.
      command: the trainer's.
    """

    output_dir: Path
    parallel: int = 1
    max_restarts: int = 5
    command: tuple[str, ...] = dataclasses.field(default_factory=lambda: TRAINER)


@dataclasses.dataclass
class _Slot:
    """A training, and what is known of it."""

    task: Task
    training: Training
    broke_at: tuple[int, int] = (-1, 0)
    """Step and exit code of its last failure."""
    told: str = ""
    """What it waits for, as the user was told."""


class Tuner:
    """Runs a search, or a share of it.

    Args:
      search: begun.
      subject: what is trained.
      presence: this tuner's, entered.
      config: how.
      stop: asked to stop by a signal.
      tell: takes a line for the user.
      show: is called now and then, to draw what goes on; its argument says whether something has
        changed.
    """

    def __init__(
        self,
        search: SharedSearch,
        subject: SearchTarget,
        presence: Heartbeat,
        config: TunerConfig,
        *,
        stop: StopRequest,
        tell: Callable[[str], None],
        show: Callable[[bool], None],
    ) -> None:
        self.search = search
        self._subject = subject
        self._presence = presence
        self._config = config
        self._stop = stop
        self._tell = tell
        self._show = show
        self._slots: dict[int, _Slot] = {}
        self._asked = 0.0

    @property
    def _metric(self) -> str:
        return self.search.searcher.plan.metric

    def run(self) -> None:
        """Works until nothing is left to do, or a signal asks to stop.

        Raises:
          UsageError: no training can work as asked: the metric is unknown, or all are refused.
        """
        try:
            while not self._stop:
                changed = self._finish()
                changed = self._fill() or changed
                if not self._slots and self.search.searcher.is_over:
                    return
                for slot in self._slots.values():
                    self._start(slot)
                self._presence.beat()
                self._show(changed)
                time.sleep(_LOOK_SECONDS)
        finally:
            self._leave()

    def _fill(self) -> bool:
        """Looks at what others have done, and takes what there is; returns whether it took some."""
        taken = False
        if time.monotonic() - self._asked < _ASK_SECONDS:
            return False
        self._look()
        while len(self._slots) < self._config.parallel:
            if taken:
                self._look()
            task = self.search.take(self._presence)
            if task is None:
                break
            self._begin(task)
            taken = True
        return taken

    def _look(self) -> None:
        """Takes what has been added to the search, and frees what the dead have held."""
        self._asked = time.monotonic()
        self.search.sync()
        for lost in self.search.free_lost(self._presence):
            self._tell(f"trial {lost.number} has lost its tuner")

    def _begin(self, task: Task) -> None:
        number = next(n for n in range(self._config.parallel) if n not in self._slots)
        self._slots[number] = _Slot(task, self._training(task, number))
        begins = "begins" if task.is_new else "goes on"
        unchanged = ", the unchanged set" if task.is_default and task.is_new else ""
        self._tell(f"trial {task.trial}{unchanged} {begins}: to step {task.to:,}")

    def _start(self, slot: _Slot) -> None:
        """Starts a training, or tells once what it waits for."""
        if not slot.training.start() and slot.told != slot.training.waits:
            slot.told = slot.training.waits
            self._tell(f"trial {slot.task.trial} waits {slot.told}")

    def directory(self, trial: int) -> Path:
        """Returns a trial's run directory."""
        return trial_directory(self._config.output_dir, trial)

    def _training(self, task: Task, slot: int) -> Training:
        plan = self.search.searcher.plan
        directory = self.directory(task.trial)
        command = [
            *self._config.command,
            *self._subject.arguments({} if task.is_default else task.hparams),
            f"--output_dir={directory}",
            f"--train_steps={plan.length}",
            f"--pause_at_step={task.to}",
            f"--random_seed={plan.seed}",
        ]
        return Training(task.trial, command, directory, environment(slot, self._config.parallel))

    def _finish(self) -> bool:
        """Reports the trainings that have ended; returns whether any had."""
        ended = False
        for number, slot in list(self._slots.items()):
            outcome = slot.training.outcome()
            if outcome is not None:
                ended = True
                self._asked = 0.0  # there may be something to do at once
                if not self._begun_again(number, slot, outcome):
                    del self._slots[number]
                    self._conclude(slot, outcome)
        return ended

    def _conclude(self, slot: _Slot, outcome: Outcome) -> None:
        """Reports the outcome of a training that is not restarted."""
        trial = slot.task.trial
        try:
            seen = read_evaluations(self.directory(trial), self._metric)
        except UsageError:
            self._hand_back(slot, Evaluations(0, ()))
            raise
        if outcome.ending == "done" and (why := _short_of(seen, slot.task.to)):
            outcome = Outcome("broken", 0, why)
        if outcome.ending == "done":
            self._report(slot, seen)
        elif outcome.ending == "invalid":
            self._tell(f"trial {trial}: invalid hyperparameters, another takes its place")
            self._add(slot, "invalid", seen, why=outcome.why)
        elif outcome.ending == "refused" and slot.task.is_default and not self._any_value():
            # It is not this trial's fault: nothing would train.
            self._hand_back(slot, seen)
            raise UsageError(
                f"the unchanged set does not train: {_without_code(outcome.why)}\n"
                f"All that it has said: {self.directory(trial)}/tuner.log"
            )
        else:
            self._tell(f"trial {trial} failed: {outcome.why}")
            self._add(slot, "fail", seen, why=outcome.why)
            self._check_that_any_trains(outcome)

    def _report(self, slot: _Slot, seen: Evaluations) -> None:
        assert seen.newest is not None
        step, value = seen.newest
        self._add(slot, "report", seen, value=value)
        trial = self.search.searcher.trials[slot.task.trial]
        then = {"free": "is promoted", "completed": "is complete"}.get(trial.status, trial.status)
        told = "not finite" if value is None else f"{value:.5g}"
        self._tell(f"trial {trial.number} {then}: {self._metric} {told} at step {step:,}")

    def _begun_again(self, number: int, slot: _Slot, outcome: Outcome) -> bool:
        """Begins a broken training again from its checkpoint, unless that is in vain."""
        if outcome.ending not in ("broken", "stopped"):
            return False
        trial = self.search.searcher.trials[slot.task.trial]
        seen = _seen(self.directory(trial.number), self._metric)
        same = outcome.code > 0 and slot.broke_at == (seen.step, outcome.code)
        if same or trial.restarts >= self._config.max_restarts:
            return False
        self._add(slot, "restart", seen, why=outcome.why, restart=trial.restarts + 1)
        self._tell(f"trial {trial.number} broke, it goes on from its checkpoint: {outcome.why}")
        slot.broke_at = seen.step, outcome.code
        slot.training = self._training(slot.task, number)
        return True

    def _check_that_any_trains(self, outcome: Outcome) -> None:
        trials = self.search.searcher.trials
        if outcome.ending != "refused" or self._any_value():
            return
        failed = [trial for trial in trials if trial.status == "failed"]
        if len(failed) >= _REFUSED_IN_A_ROW:
            raise UsageError(
                f"the first {len(failed)} trials all failed, the last one so: "
                f"{_without_code(outcome.why)}"
            )

    def _any_value(self) -> bool:
        return any(trial.curve for trial in self.search.searcher.trials)

    def _add(self, slot: _Slot, do: str, seen: Evaluations, **more: object) -> None:
        trial = self.search.searcher.trials[slot.task.trial]
        known = dict(trial.curve)
        curve = [[step, value] for step, value in seen.curve if (step not in known)]
        step, seconds = seen.step, round(slot.training.seconds, 2)
        entry = {"step": step, "curve": curve, "seconds": seconds, **more}
        if not self.search.tell(self._presence, do, trial.number, **entry):
            self._tell(f"trial {trial.number} was taken over by another tuner")

    def _hand_back(self, slot: _Slot, seen: Evaluations) -> None:
        self._add(slot, "leave", seen)

    def _leave(self) -> None:
        """Stops the trainings and hands them back to the search."""
        for slot in self._slots.values():
            slot.training.ask_to_stop()
        if any(not slot.training.waits for slot in self._slots.values()):
            self._tell("the trainings save and end; the same command goes on with them")
        until = time.monotonic() + _STOP_SECONDS
        for number, slot in list(self._slots.items()):
            while not slot.training.waits and slot.training.outcome() is None:
                if time.monotonic() > until:
                    slot.training.kill()
                time.sleep(_LOOK_SECONDS)
            del self._slots[number]
            directory = self.directory(slot.task.trial)
            try:
                self._hand_back(slot, _seen(directory, self._metric))
            except T2TError as error:  # whoever goes on finds that this tuner is gone
                print(f"trial {slot.task.trial} was not handed back: {error}", file=sys.stderr)


def _seen(directory: Path, metric: str) -> Evaluations:
    """Returns what a run has evaluated; nothing if it has no such metric."""
    try:
        return read_evaluations(directory, metric)
    except UsageError:
        return Evaluations(0, ())


def _short_of(seen: Evaluations, to: int) -> str:
    """Returns what is missing of a training that says it is done; empty if nothing is."""
    if seen.newest is None:
        return "it ended without an evaluation"
    if seen.newest[0] < to:
        return f"its last evaluation is of step {seen.newest[0]:,}, and step {to:,} was asked for"
    return ""


def _without_code(why: str) -> str:
    return why.partition(": ")[2].removeprefix("error: ") or why


# What a search leaves behind: its record, its page, what it found, and a link to the best run.


RECORD = "search.json"
PAGE = "search.html"
BEST = "best"


def check_any_value(record: SearchRecord) -> None:
    """Checks that a search that is over has found something.

    Raises:
      T2TError: no trial has come to a value; says why most have not.
    """
    if record.best is not None or not record.trials:
        return
    reasons = [trial.error or "the metric was not finite" for trial in record.trials]
    why, count = Counter(reasons).most_common(1)[0]
    log = record.trials[reasons.index(why)].output_dir / LOG
    raise T2TError(
        f"no trial has come to its end with a value of {record.metric}; {count} of {len(reasons)} "
        f"ended so: {why}\nAll that the first of them has said: {log}\nMend it, and begin again in "
        "another --output_dir."
    )


def write_outcome(record: SearchRecord, where: Callable[[int], str]) -> list[str]:
    """Writes all that a search tells into its folder.

    Args:
      record: of a search, over or not.
      where: tells the machine and folder in which a trial was trained, if it was not here; empty
        if nobody knows.

    Returns:
      Lines for the user: what was found, and what lies where.
    """
    from t2t_torch.tune.findings import write_findings
    from t2t_torch.tune.search_page import search_page

    directory = record.output_dir
    write_text(directory / RECORD, record.to_json())
    write_text(directory / PAGE, search_page(record))
    told = write_findings(record, directory)
    lines = [told, "", f"All of it, to look at: {directory / PAGE}"]
    if record.best is not None:
        lines.append(_tell_best(directory / BEST, record.best, where))
    return lines


def _tell_best(link: Path, best: TrialRecord, where: Callable[[int], str]) -> str:
    """Links to the best run if it is here; returns a line that says where it is."""
    if best.output_dir.is_dir():
        _link(link, best.output_dir)
        return f"The best run, to decode, export or serve: {link}"
    link.unlink(missing_ok=True)  # to one that is not the best any more
    told = where(best.number) or "another --output_dir of this search"
    name = best.output_dir.relative_to(link.parent)
    return f"The best run, {name}, is not here. It was trained in {told}"


def _link(link: Path, target: Path) -> None:
    """Makes a relative link, which is moved into its place: there is always one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.incomplete")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
