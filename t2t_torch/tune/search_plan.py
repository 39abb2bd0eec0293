"""Plan and record of a search, free of torch, optuna and open files.

A plan has the method, the length of trials, the metric and the rungs.  It does not change during a
search: it is the first entry of the trial history, and every tuner that joins must have the same.

A record, written as `search.json`, contains everything that the page and the findings show.  It is
derived from the trial history and run directories of a search.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from t2t_torch.errors import DataError, UsageError
from t2t_torch.search_space import AnyValue

WORST = math.inf
"""Loss that ranks failed trials."""

Mode = Literal["aggressive", "standard", "conservative"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""aggressive: one bracket with all rungs; standard: half of the brackets; conservative: all."""


class Rungs:
    """One bracket: training lengths at which trials are compared, with the values reached.

    The rules are those of Determined's last version (`asha_stopping.go`, `adaptive_asha.go`); the
    algorithm is the stopping variant of Li et al. 2020, arXiv:1810.05934.

    Args:
      lengths: optimizer steps of each rung; the last is the full length.
      divisor: reduction factor: one in `divisor` trials continues.

    Attributes:
      ranked: loss and number of the trials that reached each rung, best first.
    """

    def __init__(self, lengths: Sequence[int], divisor: float) -> None:
        self.lengths = tuple(lengths)
        self._divisor = divisor
        self.ranked: list[list[tuple[float, int]]] = [[] for _ in lengths]

    def insert(self, trial: int, rung: int, loss: float) -> bool:
        """Adds a trial's loss at a rung; returns True if it continues to the next rung.

        It continues if it is among the best `int(n / divisor)` of the `n` trials at the rung,
        including itself, or if it is the best.  No trial continues after the last rung.

        Args:
          trial: number of the trial.
          rung: index of the rung, from 0.
          loss: lower is better; `WORST`, of a trial that failed, and NaN never continue.
        """
        ranked, value = self.ranked[rung], WORST if math.isnan(loss) else loss
        place = bisect.bisect_left(ranked, value, key=lambda one: one[0])  # before equal losses
        ranked.insert(place, (value, trial))
        if rung == len(self.lengths) - 1 or not loss < WORST:
            return False
        return place < max(int(len(ranked) / self._divisor), 1)

    def remove(self, trial: int) -> None:
        """Removes a trial with invalid hyperparameters from all rungs."""
        self.ranked = [[one for one in ranked if one[1] != trial] for ranked in self.ranked]


@dataclass(frozen=True)
class RungBracket:
    """Rungs, and the number of trials that start there.

    Attributes:
      lengths: optimizer steps of each rung.
      trials: number of trials that start in the bracket.
    """

    lengths: tuple[int, ...]
    trials: int


def rung_lengths(rungs: int, length: int, divisor: float) -> tuple[int, ...]:
    """Returns the steps of each rung: the last is the full length, others 1/divisor of the next."""
    return tuple(max(int(length / divisor ** (rungs - 1 - i)), 1) for i in range(rungs))


def most_rungs(max_rungs: int, length: int, max_trials: int, divisor: float) -> int:
    """Returns the maximum number of rungs: a trial reaches the top, and the lowest has a step."""
    rungs = 1
    while rungs < max_rungs and divisor**rungs <= min(length, max_trials):
        rungs += 1
    return rungs


def bracket_rungs(mode: str, rungs: int) -> list[int]:
    """Returns the number of rungs of each bracket of a mode, in descending order."""
    least = {"aggressive": rungs, "standard": (rungs - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(rungs, least - 1, -1))


def brackets(
    rungs: Sequence[int], length: int, max_trials: int, divisor: float
) -> list[RungBracket]:
    """Distributes trials among brackets such that the brackets have similar amounts of work.

    Args:
      rungs: number of rungs of each bracket.
      length: optimizer steps of a full training.
      max_trials: total number of trials; each bracket gets at least one, the first the remainder.
      divisor: see `Rungs`.

    Returns:
      The brackets, in descending order of rungs.
    """
    ordered = sorted(rungs, reverse=True)
    weights = [divisor ** (count - 1) / count for count in ordered]
    shares = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    shares[0] += max(max_trials - sum(shares), 0)
    return [
        RungBracket(rung_lengths(count, length, divisor), share)
        for count, share in zip(ordered, shares, strict=True)
    ]


def next_bracket(shares: Sequence[int], dealt: Sequence[int]) -> int:
    """Returns the bracket for the next trial: the one with the largest remaining share.

    Args:
      shares: number of trials of each bracket.
      dealt: number of trials already started in each bracket.
    """
    left = [(share - had) / share for share, had in zip(shares, dealt, strict=True)]
    return max(range(len(shares)), key=lambda place: (left[place], -place))


SearcherName = Literal[
    "adaptive_asha", "asha", "adaptive", "adaptive_simple", "random", "grid", "tpe", "single"
]
SEARCHERS: tuple[SearcherName, ...] = get_args(SearcherName)
"""Values of `searcher`.  `adaptive` and `adaptive_simple` are PEDL's older names of the first;
`asha` has a single bracket in any mode."""

WITH_RUNGS = frozenset({"adaptive_asha", "asha", "adaptive", "adaptive_simple"})
"""The searchers that compare trials at rungs."""


class _Ranking:
    """Order of the values of a metric."""

    lower_is_better: bool

    def loss_of(self, value: float | None) -> float:
        """Returns a value, negated if higher is better; infinity if missing or not finite."""
        if value is None or not math.isfinite(value):
            return WORST
        return value if self.lower_is_better else -value


@dataclasses.dataclass(frozen=True)
class SearchPlan(_Ranking):
    """Plan of a search.

    Attributes:
      searcher: one of `SEARCHERS`.
      metric: name of the evaluation metric that ranks trials.
      lower_is_better: whether lower metric values are better.
      length: optimizer steps of a full training.
      max_trials: total number of trials, including the default.
      seed: seed of the search and of its trainings.
      divisor: reduction factor: one in `divisor` trials continues at each rung.
      max_rungs: maximum number of rungs; fewer if there are not enough steps or trials.
      mode: one of `MODES`; determines the number of brackets.
      bracket_rungs: number of rungs of each bracket, overriding mode and max_rungs; empty: derived.
      max_concurrent: maximum number of concurrent trials over all tuners; 0: no limit.
      default: values of the unchanged hparams set, which is the first trial and never stopped;
        None: it is not tried.

    Raises:
      UsageError: `divisor` or `bracket_rungs` are out of range; the settings of a search and the
        configuration of an experiment check the others.
    """

    searcher: str
    metric: str
    lower_is_better: bool
    length: int
    max_trials: int
    seed: int = 1
    divisor: float = 4.0
    max_rungs: int = 5
    mode: str = "standard"
    bracket_rungs: tuple[int, ...] = ()
    max_concurrent: int = 0
    default: Mapping[str, AnyValue] | None = None

    def __post_init__(self) -> None:
        if not self.divisor > 1:
            raise UsageError(f"divisor is {self.divisor:g}; more than 1 was expected: 4 is usual.")
        if any(count < 1 for count in self.bracket_rungs):
            raise UsageError(f"bracket_rungs is {list(self.bracket_rungs)}; each is at least 1.")

    @property
    def brackets(self) -> list[RungBracket]:
        """The brackets in which trials are compared; without ASHA one, at the full length."""
        if self.searcher not in WITH_RUNGS:
            return [RungBracket((self.length,), self.max_trials)]
        rungs = list(self.bracket_rungs)
        if not rungs:
            most = most_rungs(self.max_rungs, self.length, self.max_trials, self.divisor)
            rungs = [most] if self.searcher == "asha" else bracket_rungs(self.mode, most)
        return brackets(rungs, self.length, self.max_trials, self.divisor)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SearchPlan:
        """Returns the plan of these fields, as in a trial history.

        Raises:
          DataError: the fields are not a valid plan.
        """
        try:
            return cls(**{**fields, "bracket_rungs": tuple(fields["bracket_rungs"])})
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the search was planned by another version of t2t_torch: {error!r}. Resume with "
                "that version, or begin in another --output_dir."
            ) from error


State = Literal["running", "paused", "completed", "stopped", "failed"]
"""running: training, or next to train; paused: waits to resume; completed: reached its full length;
stopped: ended by a rung; failed: raised an error, or its hyperparameters were rejected."""

STATES: tuple[State, ...] = ("running", "paused", "completed", "stopped", "failed")


@dataclasses.dataclass(frozen=True)
class SpaceAxis:
    """Axis of the search space: one searched hyperparameter.

    Attributes:
      name: dotted name.
      kind: "const", "int", "double", "log" or "categorical".
      log: whether a logarithmic axis suits its values.
      low: minimum; None if categorical.
      high: maximum; None if categorical.
      values: values of a categorical axis, in order; the single value of a constant.
    """

    name: str
    kind: str
    log: bool
    low: float | None = None
    high: float | None = None
    values: tuple[AnyValue, ...] = ()


@dataclasses.dataclass(frozen=True)
class TrialRecord:
    """One trial of a search.

    Attributes:
      number: number of the trial, from 0.
      state: see `State`.
      hparams: dotted name -> value, searched hyperparameters only.
      step: known number of completed optimizer steps.
      length: optimizer steps of a full training.
      value: metric at the latest evaluation; None if missing or not finite.
      curve: (step, value) of each evaluation; None if the value is not finite.
      seconds: training time in seconds, including restarts.
      error: reason of a failure; otherwise empty.
      output_dir: run directory.
      restarts: number of restarts after failures.
      loss: loss at the latest evaluation, which decides between equal values; None: unknown.
    """

    number: int
    state: State
    hparams: Mapping[str, AnyValue]
    step: int
    length: int
    value: float | None
    curve: tuple[tuple[int, float | None], ...]
    seconds: float
    error: str
    output_dir: Path
    restarts: int = 0
    loss: float | None = None

    @property
    def evaluated(self) -> int:
        """The step of the latest evaluation; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def values(self) -> dict[int, float]:
        """The finite values by step."""
        return {step: value for step, value in self.curve if value is not None}


@dataclasses.dataclass(frozen=True)
class SearchRecord(_Ranking):
    """Record of a search, finished or not.

    Attributes:
      name: display name of the target: problem and model, or trial class.
      searcher: search method: "adaptive_asha", "random", ...
      metric: name of the optimized metric.
      lower_is_better: whether lower metric values are better.
      seed: seed of the search.
      space: search space, including constants.
      trials: trials by number, including the default.
      default: trial with the unchanged hparams set; None if it was not run.
      seconds: training time in seconds, summed over trials.
      began: start time in seconds since 1970.
      over: whether the search is complete.
      output_dir: directory of the search.
      command: command that starts or resumes the search.
      model: registered name of the model; empty for a PyTorchTrial.
      hparams_set: hparams set that the trials change; empty for a PyTorchTrial.
      hparams_changes: changes to the set that all trials share (`--hparams`).
      problem: registered name of the problem; empty for a PyTorchTrial.
      trial: value of `--trial`; empty for a problem.
    """

    name: str
    searcher: str
    metric: str
    lower_is_better: bool
    seed: int
    space: tuple[SpaceAxis, ...]
    trials: tuple[TrialRecord, ...]
    default: TrialRecord | None
    seconds: float
    began: float
    over: bool
    output_dir: Path
    command: str = ""
    model: str = ""
    hparams_set: str = ""
    hparams_changes: str = ""
    problem: str = ""
    trial: str = ""

    @property
    def best(self) -> TrialRecord | None:
        """The best of the trials with the most steps; None before the first evaluation.

        Only values at equal steps are compared: values of shorter trainings are not comparable.
        The loss decides between equal values, then the number.
        """
        valued = [one for one in self.trials if one.value is not None and one.state != "failed"]
        if not valued:
            return None
        furthest = max(one.evaluated for one in valued)
        return min(
            (one for one in valued if one.evaluated == furthest),
            key=lambda one: (
                self.loss_of(one.value),
                math.inf if one.loss is None else one.loss,
                one.number,
            ),
        )

    @property
    def counts(self) -> dict[State, int]:
        """The number of trials in each state, without empty states."""
        states = [one.state for one in self.trials]
        return {state: states.count(state) for state in STATES if state in states}

    def to_json(self) -> str:
        """Returns the record as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1, default=str) + "\n"


def duration(seconds: float) -> str:
    """Formats a duration: "45 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
