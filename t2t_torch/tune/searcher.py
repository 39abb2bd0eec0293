"""The state of a search as a function of its trial history.

`SearchState` applies events in the order of the trial history.  All tuners that read the same
history reach the same state, so tuners need not communicate their decisions, and an interrupted
search resumes as if it had not been interrupted.

An event that does not fit the state when it is applied is *void*: it has no effect for any tuner.
If two tuners claim the same trial at the same time, the second event in the history is void, and
its tuner tries again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from t2t_torch.search_space import AnyValue, Categorical, Integer, Kind, Range, Space
from t2t_torch.tune.search_plan import WORST, Rungs, SearchPlan, next_bracket
from t2t_torch.tune.study import optuna_module

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


_DRAWS = 100
"""Maximum number of redraws if a combination was tried before."""

_LEAST_DRAWN = 3


def suggest(
    plan: SearchPlan, space: Space, trials: Sequence[SearchTrial]
) -> dict[str, AnyValue] | None:
    """Returns the hyperparameters of the next trial; None if there is no untried combination.

    A suggestion is a function of its arguments: there is no persistent generator, so an
    interrupted search resumes with the same suggestions.

    Args:
      plan: plan of the search; of tpe a quarter of its trials, between 3 and 10, are random.
      space: search space.
      trials: the preceding trials, including the default.
    """
    number = len(trials)
    if plan.searcher == "grid":  # the default is not part of it
        place = number - int(plan.default is not None)
        return next(itertools.islice(space.grid(), place, None), None)
    taken = {key(one.hparams) for one in trials}
    if plan.searcher == "tpe" and space.searched:
        startup = min(max(plan.max_trials // 4, _LEAST_DRAWN), 10)
        finished = {
            one.number: WORST if one.status == "failed" else plan.loss_of(one.value)
            for one in trials
            if one.status in ("completed", "failed")
        }
        if sum(map(math.isfinite, finished.values())) >= startup:
            values = _promising(plan, space, trials, finished, startup)
            if key(values) not in taken:
                return values
    rng = random.Random(f"{plan.seed}/{number}")
    for _ in range(_DRAWS):
        drawn = space.sample(rng)
        if key(drawn) not in taken:
            return drawn
    return None


def _promising(
    plan: SearchPlan,
    space: Space,
    trials: Sequence[SearchTrial],
    losses: Mapping[int, float],
    startup: int,
) -> dict[str, AnyValue]:
    """Returns a combination by optuna's tree-structured Parzen estimator.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization".  The sampler is created for
    each trial, seeded by its number, and receives all results known at that time: without
    concurrency a search is reproducible.
    """
    optuna = optuna_module()
    number = len(trials)
    seed = random.Random(f"{plan.seed}/{number}/tpe").getrandbits(32)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
    study = optuna.create_study(sampler=sampler)
    axes = {name: distribution(kind) for name, kind in space.searched.items()}
    worst = max(loss for loss in losses.values() if math.isfinite(loss))
    for trial, loss in losses.items():
        # A failed trial counts as the worst known result.
        value = loss if math.isfinite(loss) else worst
        inside = axes_of(space, trials[trial].hparams)
        study.add_trial(optuna.trial.create_trial(**inside, value=value))
    params = study.ask(fixed_distributions=axes).params
    fixed = space.sample(random.Random(0))
    return {
        name: kind.from_axis(params[name]) if name in axes else fixed[name]
        for name, kind in space.kinds.items()
    }


def key(hparams: Mapping[str, AnyValue]) -> str:
    """Returns a string key of hyperparameters, independent of their order."""
    return json.dumps(hparams, sort_keys=True, default=dict)


def distribution(kind: Kind) -> BaseDistribution:
    """Returns optuna's distribution of an axis; see `Kind.to_axis`."""
    known = optuna_module().distributions
    made: Any
    if isinstance(kind, Categorical):
        made = known.CategoricalDistribution(range(len(kind.values)))
    else:
        assert isinstance(kind, Range)
        of = known.IntDistribution if isinstance(kind, Integer) else known.FloatDistribution
        made = of(*kind.ends, log=kind.log or kind.reverse)
    return made  # type: ignore[no-any-return]


def axes_of(space: Space, hparams: Mapping[str, AnyValue]) -> dict[str, Any]:
    """Returns optuna's `params` and `distributions` of a trial, for values within their ranges."""
    inside = {
        name: kind
        for name, kind in space.searched.items()
        if name in hparams and kind.allows(hparams[name])
    }
    return {
        "params": {name: kind.to_axis(hparams[name]) for name, kind in inside.items()},
        "distributions": {name: distribution(kind) for name, kind in inside.items()},
    }


Status = Literal["free", "held", "completed", "stopped", "failed", "invalid"]
"""free: waiting for a tuner; held: claimed by a tuner; others: finished."""


@dataclasses.dataclass
class SearchTrial:
    """State of a trial.

    Attributes:
      number: number of the trial, from 0.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged hparams set, which is never stopped at a rung.
      bracket: index of its bracket.
      rung: index of the next rung, or of the rung where it ended.
      target: optimizer steps of that rung.
      status: see `Status`.
      tuner: current or last tuner.
      place: place of its run directory; see `study.py`.
      step: reported optimizer steps.
      curve: (step, value) of each evaluation; None if the value is not finite.
      value: latest value.
      seconds: training time in seconds.
      restarts: number of restarts after failures.
      why: reason of the failure.
    """

    number: int
    hparams: Mapping[str, AnyValue]
    is_default: bool
    bracket: int
    rung: int
    target: int
    status: Status
    tuner: str
    place: str
    step: int = 0
    curve: list[tuple[int, float | None]] = dataclasses.field(default_factory=list)
    value: float | None = None
    seconds: float = 0.0
    restarts: int = 0
    why: str = ""

    @property
    def is_over(self) -> bool:
        """True if the trial will not be trained further."""
        return self.status not in ("free", "held")

    def add_curve(self, curve: list[tuple[int, float | None]]) -> None:
        """Adds evaluations; an evaluation of a known step replaces the earlier one."""
        known = dict(self.curve)
        known.update(curve)
        self.curve = sorted(known.items())


Event = Mapping[str, Any]
"""Entry of the trial history: its type ("do"), "tuner", "time" and type-specific fields."""


@dataclasses.dataclass(frozen=True)
class SearchTask:
    """Unit of work for a tuner.

    Attributes:
      trial: number of the trial.
      to: optimizer step to train to.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged hparams set.
      is_new: whether the trial has not started yet.
    """

    trial: int
    to: int
    hparams: Mapping[str, AnyValue]
    is_default: bool
    is_new: bool


class SearchState:
    """State of a search.

    Args:
      plan: plan of the search.
      space: search space.

    Attributes:
      trials: trials by number.
      rungs: rungs of each bracket.
    """

    def __init__(self, plan: SearchPlan, space: Space) -> None:
        self.plan = plan
        self.space = space
        self.brackets = plan.brackets
        self.rungs = [Rungs(bracket.lengths, plan.divisor) for bracket in self.brackets]
        self.trials: list[SearchTrial] = []
        self._next: tuple[int, SearchTask | None] | None = None
        self._events = 0

    @property
    def valid(self) -> list[SearchTrial]:
        """The trials that count: without replaced ones."""
        return [trial for trial in self.trials if trial.status != "invalid"]

    @property
    def is_over(self) -> bool:
        """True if the search is complete."""
        return all(trial.is_over for trial in self.trials) and self._new_task() is None

    @property
    def gave_up(self) -> bool:
        """True if the search ended because almost all hyperparameters were rejected as invalid."""
        return len(self.trials) - len(self.valid) >= 2 * self.plan.max_trials + 8

    @property
    def is_blank(self) -> bool:
        """True if no trial has been evaluated or has ended yet."""
        return all(trial.status == "free" and not trial.curve for trial in self.trials)

    @property
    def will_start(self) -> bool:
        """True if more trials will start, provided that untried combinations remain."""
        return len(self.valid) < self.plan.max_trials and not self.gave_up

    @property
    def why_early(self) -> str:
        """Reason for ending with fewer trials than requested; empty if there are as many."""
        valid, requested = len(self.valid), self.plan.max_trials
        if not self.is_over or valid >= requested:
            return ""
        if self.gave_up:
            refused = len(self.trials) - valid
            return (
                f"it gave up at {valid} of {requested} trials: {refused} others had "
                "hyperparameters that were refused as invalid; narrow the ranges"
            )
        return (
            f"it ended at {valid} of {requested} trials: all that the ranges allow was tried, or "
            "nothing new was drawn any more"
        )

    @property
    def _is_full(self) -> bool:
        """Returns True if the maximum number of concurrent trials is reached."""
        held = sum(trial.status == "held" for trial in self.trials)
        return 0 < self.plan.max_concurrent <= held

    def next_task(self, is_reachable: Callable[[SearchTrial], bool]) -> SearchTask | None:
        """Returns the next task; None: wait for other tuners, or the search is complete.

        Started trials take precedence over new ones.

        Args:
          is_reachable: function that returns True if a waiting trial can be resumed on this
            machine.
        """
        if self._is_full:
            return None
        for trial in self.trials:
            if trial.status == "free" and is_reachable(trial):
                return SearchTask(
                    trial.number, trial.target, trial.hparams, trial.is_default, False
                )
        return self._new_task()

    def apply(self, event: Event) -> bool:
        """Applies the next event of the trial history; returns True if it was valid."""
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
        return self._report_event(str(do), trial, event)

    def _report_event(self, do: str, trial: SearchTrial, event: Event) -> bool:
        """Applies a report of the tuner that holds a trial."""
        if do == "report" and int(event["step"]) < trial.target:
            return False
        if do not in ("report", "fail", "invalid", "restart", "leave"):
            return False
        once = trial.restarts + 1  # events may be duplicated if a storage response was lost
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

    def _report(self, trial: SearchTrial, value: float | None) -> None:
        rungs = self.rungs[trial.bracket]
        trial.value = value
        loss = self.plan.loss_of(value)
        last = len(rungs.lengths) - 1
        while trial.step >= rungs.lengths[trial.rung]:
            goes_on = rungs.insert(trial.number, trial.rung, loss)
            if trial.rung == last:
                trial.status = "completed"
                return
            # The default is compared with the best trial at equal steps.
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
            if "hparams" not in event or not self.will_start:
                return False
            bracket = self._next_bracket()
            self.trials.append(
                SearchTrial(
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

    def _of(self, event: Event) -> SearchTrial | None:
        number = int(event.get("trial", -1))
        return self.trials[number] if 0 <= number < len(self.trials) else None

    def _next_bracket(self) -> int:
        dealt = [0] * len(self.brackets)
        for trial in self.valid:
            dealt[trial.bracket] += 1
        return next_bracket([bracket.trials for bracket in self.brackets], dealt)

    def _new_task(self) -> SearchTask | None:
        """Returns the task of a new trial; None if there will be no more."""
        if self._next is None or self._next[0] != self._events:  # suggestions are expensive
            self._next = self._events, self._suggested()
        return self._next[1]

    def _suggested(self) -> SearchTask | None:
        if not self.will_start:
            return None
        number = len(self.trials)
        to = self.rungs[self._next_bracket()].lengths[0]
        if number == 0 and self.plan.default is not None:
            return SearchTask(0, to, dict(self.plan.default), True, True)
        hparams = suggest(self.plan, self.space, self.trials)
        return None if hparams is None else SearchTask(number, to, hparams, False, True)
