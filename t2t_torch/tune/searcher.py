"""A search as a function of its ledger: what has happened decides what comes next.

`Searcher` takes events one after another, in the order in which the ledger has them.  Any tuner
that reads the same ledger comes to the same state, so no tuner has to be told what another one
decided; and a search that was killed goes on as if it had not been.

An event that does not fit the state when its turn comes is *void*: it changes nothing, for nobody.
Two tuners may ask for the same trial at the same moment: the ledger has an order, the second one's
event is void, and it asks again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from t2t_torch.tune.rungs import WORST, Rungs, next_bracket
from t2t_torch.tune.search_plan import SearchPlan
from t2t_torch.tune.space import Space, Value
from t2t_torch.tune.suggester import suggester_of
from t2t_torch.tune.suggestions import Tried
from t2t_torch.tune.trial_state import TrialState

Event = Mapping[str, Any]
"""What has happened: "do" says what, "tuner" who, "time" when, and the rest is its own."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What a tuner may do next.

    Attributes:
      trial: its number.
      to: optimizer steps to which it is trained.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged set.
      is_new: whether it has not begun.
    """

    trial: int
    to: int
    hparams: Mapping[str, Value]
    is_default: bool
    is_new: bool


class Searcher:
    """The state of a search.

    Args:
      plan: what was asked for.
      space: what is searched.

    Attributes:
      trials: by number.
      rungs: of each bracket.
    """

    def __init__(self, plan: SearchPlan, space: Space) -> None:
        self.plan = plan
        self.space = space
        self.brackets = plan.brackets
        self.rungs = [Rungs(bracket.lengths, plan.divisor) for bracket in self.brackets]
        self.trials: list[TrialState] = []
        self._suggester = suggester_of(plan, space)
        self._next: tuple[int, Task | None] | None = None
        self._events = 0

    @property
    def valid(self) -> list[TrialState]:
        """The trials that count: not those that were replaced."""
        return [trial for trial in self.trials if trial.status != "invalid"]

    @property
    def is_over(self) -> bool:
        """Whether all is done."""
        return all(trial.is_over for trial in self.trials) and self._new_task() is None

    @property
    def gave_up(self) -> bool:
        """Whether it ended because almost all hyperparameters were refused as invalid."""
        return len(self.trials) - len(self.valid) >= 2 * self.plan.max_trials + 8

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known yet: what was begun has come to no evaluation and no end."""
        return all(trial.status == "free" and not trial.curve for trial in self.trials)

    @property
    def will_begin(self) -> bool:
        """Whether more trials are to begin, if there is anything new to try."""
        return self._may_begin()

    @property
    def why_early(self) -> str:
        """Why it is over with fewer trials than were asked for; empty if it is not."""
        valid, asked = len(self.valid), self.plan.max_trials
        if not self.is_over or valid >= asked:
            return ""
        if self.gave_up:
            refused = len(self.trials) - valid
            return (
                f"it gave up at {valid} of {asked} trials: {refused} others had hyperparameters "
                "that were refused as invalid; narrow the ranges"
            )
        return (
            f"it ended at {valid} of {asked} trials: all that the ranges allow was tried, or "
            "nothing new was drawn any more"
        )

    @property
    def _is_full(self) -> bool:
        """Whether as many trials train as may at once."""
        held = sum(trial.status == "held" for trial in self.trials)
        return 0 < self.plan.max_concurrent <= held

    def next_task(self, is_reachable: Callable[[TrialState], bool]) -> Task | None:
        """Returns what to do next; None: wait for others, or all is done.

        What has begun goes on before something new begins.

        Args:
          is_reachable: whether a trial that waits can be gone on with here.
        """
        if self._is_full:
            return None
        for trial in self.trials:
            if trial.status == "free" and is_reachable(trial):
                return Task(trial.number, trial.target, trial.hparams, trial.is_default, False)
        return self._new_task()

    def apply(self, event: Event) -> bool:
        """Takes the next event of the ledger; returns whether it was valid."""
        self._events += 1
        do = event.get("do")
        if do == "take":
            return self._take(event)
        trial = self._of(event)
        if trial is None or trial.status != "held":
            return False
        if do == "lost":
            if event["holder"] != trial.tuner:
                return False
            trial.status = "free"
            return True
        if event["tuner"] != trial.tuner:
            return False
        return self._told(str(do), trial, event)

    def _told(self, do: str, trial: TrialState, event: Event) -> bool:
        """Takes what the holder of a trial tells."""
        if do == "report" and int(event["step"]) < trial.target:
            return False
        if do not in ("report", "fail", "invalid", "restart", "leave"):
            return False
        once = trial.restarts + 1  # where a storage's answer is lost, an event is written twice
        if do == "restart" and int(event.get("restart", once)) != once:
            return False
        trial.seconds += float(event.get("seconds", 0.0))
        trial.step = max(trial.step, int(event.get("step", 0)))
        trial.add_curve([(int(step), value) for step, value in event.get("curve", ())])
        rungs = self.rungs[trial.bracket]
        if do == "report":
            self._report(trial, event["value"])
        elif do == "fail":
            rungs.fail(trial.number, trial.rung)
            trial.status, trial.why = "failed", str(event["why"])
        elif do == "invalid":
            rungs.remove(trial.number)
            trial.status, trial.why = "invalid", str(event["why"])
        elif do == "restart":
            trial.restarts += 1
            trial.why = str(event["why"])
        else:
            trial.status = "free"
        return True

    def _report(self, trial: TrialState, value: float | None) -> None:
        rungs = self.rungs[trial.bracket]
        trial.value = value
        loss = trial.loss(lower_is_better=self.plan.lower_is_better)
        last = len(rungs.lengths) - 1
        while trial.step >= rungs.lengths[trial.rung]:
            goes_on = rungs.insert(trial.number, trial.rung, loss)
            if trial.rung == last:
                trial.status = "completed"
                return
            # The unchanged set is what the best one is compared with, at equal steps.
            if not goes_on and not (trial.is_default and loss < WORST):
                trial.status = "stopped"
                return
            trial.rung += 1
            trial.target = rungs.lengths[trial.rung]
        trial.status = "free"

    def _take(self, event: Event) -> bool:
        if self._is_full:
            return False
        number = int(event["trial"])
        if number == len(self.trials):
            if "hparams" not in event or not self._may_begin():
                return False
            bracket = self._next_bracket()
            self.trials.append(
                TrialState(
                    number=number,
                    hparams=dict(event["hparams"]),
                    is_default=bool(event.get("is_default")),
                    bracket=bracket,
                    rung=0,
                    target=self.rungs[bracket].lengths[0],
                    status="held",
                    tuner=str(event["tuner"]),
                    place=str(event["place"]),
                )
            )
            return True
        trial = self._of(event)
        if trial is None or trial.status != "free" or int(event["to"]) != trial.target:
            return False
        trial.status, trial.tuner, trial.place = "held", str(event["tuner"]), str(event["place"])
        return True

    def _of(self, event: Event) -> TrialState | None:
        number = int(event.get("trial", -1))
        return self.trials[number] if 0 <= number < len(self.trials) else None

    def _may_begin(self) -> bool:
        return len(self.valid) < self.plan.max_trials and not self.gave_up

    def _next_bracket(self) -> int:
        dealt = [0] * len(self.brackets)
        for trial in self.valid:
            dealt[trial.bracket] += 1
        return next_bracket([bracket.trials for bracket in self.brackets], dealt)

    def _new_task(self) -> Task | None:
        """Returns what a new trial would be; None if there is to be no more."""
        if self._next is None or self._next[0] != self._events:  # a suggestion takes its time
            self._next = self._events, self._suggested()
        return self._next[1]

    def _suggested(self) -> Task | None:
        if not self._may_begin():
            return None
        number = len(self.trials)
        to = self.rungs[self._next_bracket()].lengths[0]
        if number == 0 and self.plan.default is not None:
            return Task(0, to, dict(self.plan.default), True, True)
        hparams = self._suggester.suggest(number, [self._tried(one) for one in self.trials])
        return None if hparams is None else Task(number, to, hparams, False, True)

    def _tried(self, trial: TrialState) -> Tried:
        if trial.status == "failed":
            return Tried(trial.hparams, WORST)
        if trial.status != "completed":
            return Tried(trial.hparams, None)
        return Tried(trial.hparams, trial.loss(lower_is_better=self.plan.lower_is_better))
