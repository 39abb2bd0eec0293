"""One tuner: takes what is to be done from the search, trains it, and tells what came of it."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

from t2t_torch.errors import T2TError, UsageError
from t2t_torch.train.stop import StopRequest
from t2t_torch.tune.evaluations import Evaluations, read_evaluations
from t2t_torch.tune.presence import Presence
from t2t_torch.tune.run_folders import trial_directory
from t2t_torch.tune.runs import TRAINER, Outcome, Training
from t2t_torch.tune.searcher import Task
from t2t_torch.tune.shared_search import SharedSearch
from t2t_torch.tune.slots import environment
from t2t_torch.tune.subject import Subject

_LOOK_SECONDS = 0.05  # at the processes
_ASK_SECONDS = 1.0  # the ledger, where there is nothing to do
_STOP_SECONDS = 120.0  # for trainings to save
_REFUSED_IN_A_ROW = 3


@dataclasses.dataclass(frozen=True)
class TunerConfig:
    """How one tuner works; another one of the same search may work otherwise.

    Attributes:
      output_dir: of the search.
      parallel: trainings at once.
      max_restarts: how often a training that breaks is begun again from its checkpoint.
      command: the trainer's.
    """

    output_dir: Path
    parallel: int = 1
    max_restarts: int = 5
    command: tuple[str, ...] = TRAINER


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
        subject: Subject,
        presence: Presence,
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
        """Tells what became of the trainings that have ended; returns whether any had."""
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
        """Tells the search how a training has ended that is not begun again."""
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
        """Lets the trainings save and end, and hands them back to the search."""
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
