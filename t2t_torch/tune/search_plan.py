"""Plan of a search: method, length of trials, metric, rungs.

A plan does not change while a search goes on: it is the first entry of the search's ledger, and
whoever joins has to bring the same.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError, UsageError
from t2t_torch.search_space import AnyValue, Space

# The rungs of ASHA: who goes on, who stops.  No training, no clock, no generator.
#
# The rules are Determined's, of its last version (`asha_stopping.go`, `adaptive_asha.go`); the
# algorithm is that of Li et al. 2020, arXiv:1810.05934, in the form that stops what is behind.


WORST = math.inf
"""What a failed trial is ranked with."""

MODES = ("aggressive", "standard", "conservative")
"""aggressive: one bracket, of all rungs; standard: half of the brackets; conservative: all."""


class Rungs:
    """One bracket: lengths at which trials are compared, and the values that came there.

    Args:
      lengths: optimizer steps of each rung, the last one that of a whole training.
      divisor: one of so many goes on.
    """

    def __init__(self, lengths: Sequence[int], divisor: float) -> None:
        self.lengths = tuple(lengths)
        self._divisor = divisor
        self._ranked: list[list[tuple[float, int]]] = [[] for _ in lengths]

    def insert(self, trial: int, rung: int, loss: float) -> bool:
        """Adds what a trial has reached at a rung; returns whether it goes on to the next one.

        It does if it is among the best `int(n / divisor)` of the `n` that have come there, itself
        counted, and the best one always does.  At the last rung there is nowhere to go.

        Args:
          trial: its number.
          rung: from 0.
          loss: less is better; what is not a number is the worst, and never goes on.
        """
        ranked = self._ranked[rung]
        place = self._insert(ranked, trial, loss)
        if rung == len(self.lengths) - 1 or not loss < WORST:
            return False
        return place < max(int(len(ranked) / self._divisor), 1)

    def fail(self, trial: int, rung: int) -> None:
        """Ranks a trial that has failed on its way to a rung behind all others there."""
        self._insert(self._ranked[rung], trial, WORST)

    def remove(self, trial: int) -> None:
        """Takes a trial whose hyperparameters are invalid from all rungs, as if it never was."""
        self._ranked = [[one for one in ranked if one[1] != trial] for ranked in self._ranked]

    def ranked(self, rung: int) -> list[int]:
        """Returns the trials that have come to a rung, the best first."""
        return [trial for _, trial in self._ranked[rung]]

    @staticmethod
    def _insert(ranked: list[tuple[float, int]], trial: int, loss: float) -> int:
        """Inserts before what is as good, and returns where."""
        value = WORST if math.isnan(loss) else loss
        place = bisect.bisect_left(ranked, value, key=lambda one: one[0])
        ranked.insert(place, (value, trial))
        return place


@dataclass(frozen=True)
class Bracket:
    """Rungs, and how many trials begin there.

    Attributes:
      lengths: optimizer steps of each rung.
      trials: that begin there.
    """

    lengths: tuple[int, ...]
    trials: int


def rung_lengths(rungs: int, length: int, divisor: float) -> tuple[int, ...]:
    """Returns the steps of each rung: the last is the whole length, each before it a divisor-th."""
    return tuple(max(int(length / divisor ** (rungs - 1 - i)), 1) for i in range(rungs))


def most_rungs(max_rungs: int, length: int, max_trials: int, divisor: float) -> int:
    """Returns how many rungs there can be: a trial reaches the top, and the lowest has a step."""
    rungs = 1
    while rungs < max_rungs and divisor**rungs <= min(length, max_trials):
        rungs += 1
    return rungs


def bracket_rungs(mode: str, rungs: int) -> list[int]:
    """Returns the rungs of each bracket of a mode, most first.

    Raises:
      UsageError: there is no such mode.
    """
    if mode not in MODES:
        raise UsageError(f"mode {mode!r}: one of {', '.join(MODES)} was expected.")
    least = {"aggressive": rungs, "standard": (rungs - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(rungs, least - 1, -1))


def brackets(rungs: Sequence[int], length: int, max_trials: int, divisor: float) -> list[Bracket]:
    """Shares trials among brackets, so that each has about the same work.

    Args:
      rungs: of each bracket.
      length: optimizer steps of a whole training.
      max_trials: in all; a bracket has at least one, the first what is left.
      divisor: as `Rungs` takes it.

    Returns:
      The brackets, most rungs first.
    """
    ordered = sorted(rungs, reverse=True)
    weights = [divisor ** (count - 1) / count for count in ordered]
    shares = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    shares[0] += max(max_trials - sum(shares), 0)
    return [
        Bracket(rung_lengths(count, length, divisor), share)
        for count, share in zip(ordered, shares, strict=True)
    ]


def next_bracket(shares: Sequence[int], dealt: Sequence[int]) -> int:
    """Returns the bracket in which the next trial begins: where most of the share is left.

    Args:
      shares: of the trials, by bracket.
      dealt: how many have begun there already.
    """
    left = [(share - had) / share for share, had in zip(shares, dealt, strict=True)]
    return max(range(len(shares)), key=lambda place: (left[place], -place))


SEARCHERS = (
    "adaptive_asha",
    "asha",
    "adaptive",
    "adaptive_simple",
    "random",
    "grid",
    "tpe",
    "single",
)
"""What `searcher` may be.  `adaptive` and `adaptive_simple` are PEDL's older names of the first;
`asha` has one bracket, whatever the mode."""

WITH_RUNGS = frozenset({"adaptive_asha", "asha", "adaptive", "adaptive_simple"})
"""Of them, those that compare trials at rungs."""


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """A search as it was asked for.

    Attributes:
      searcher: of `SEARCHERS`.
      metric: by which trials are ranked, as evaluations name it.
      lower_is_better: of the metric.
      length: optimizer steps of a whole training.
      max_trials: in all, the default counted.
      seed: of the search, and of its trainings.
      divisor: at each rung one of so many goes on.
      max_rungs: at most; fewer if steps or trials do not suffice.
      mode: of `rungs.MODES`, how many brackets there are.
      bracket_rungs: the rungs of each bracket, in place of mode and max_rungs; empty: by those.
      max_concurrent: trials that train at once, over all tuners; 0: no limit.
      default: the values of the unchanged set, which is the first trial and never stopped; None:
        it is not tried.

    Raises:
      UsageError: a number is out of bounds, or a name unknown.
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
        faults = [
            f"{name} is {getattr(self, name)}; at least {least} was expected."
            for name, least in {
                "length": 1,
                "max_trials": 1,
                "max_rungs": 1,
                "max_concurrent": 0,
            }.items()
            if getattr(self, name) < least
        ]
        if self.searcher not in SEARCHERS:
            faults.append(f"searcher is {self.searcher!r}; one of {', '.join(SEARCHERS)} is known.")
        if not self.divisor > 1:
            faults.append(f"divisor is {self.divisor:g}; more than 1 was expected: 4 is usual.")
        if self.mode not in MODES:
            faults.append(f"mode is {self.mode!r}; one of {', '.join(MODES)} was expected.")
        if any(count < 1 for count in self.bracket_rungs):
            faults.append(f"bracket_rungs is {list(self.bracket_rungs)}; each is at least 1.")
        if faults:
            raise UsageError("\n".join(faults))

    @property
    def brackets(self) -> list[Bracket]:
        """The rungs at which trials are compared; without ASHA one, at the whole length."""
        if self.searcher not in WITH_RUNGS:
            return [Bracket((self.length,), self.max_trials)]
        rungs = list(self.bracket_rungs)
        if not rungs:
            most = most_rungs(self.max_rungs, self.length, self.max_trials, self.divisor)
            rungs = [most] if self.searcher == "asha" else bracket_rungs(self.mode, most)
        return brackets(rungs, self.length, self.max_trials, self.divisor)

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as JSON can say it."""
        return {**dataclasses.asdict(self), "bracket_rungs": list(self.bracket_rungs)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SearchPlan:
        """Reads what `to_dict` has made.

        Raises:
          DataError: it is something else.
        """
        try:
            return cls(**{**fields, "bracket_rungs": tuple(fields["bracket_rungs"])})
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the search was planned by another version of t2t_torch: {error!r}. Go on with "
                "that version, or begin in another --output_dir."
            ) from error


def differences(before: tuple[SearchPlan, Space], asked: tuple[SearchPlan, Space]) -> list[str]:
    """Returns what two searches differ in, a line for each."""
    (plan, space), (new_plan, new_space) = before, asked
    told = [
        f"{name}: {old!r} there, {new!r} asked for"
        for name, old in plan.to_dict().items()
        if (new := new_plan.to_dict()[name]) != old
    ]
    for name in {**space.kinds, **new_space.kinds}:
        old_kind, new_kind = space.kinds.get(name), new_space.kinds.get(name)
        if old_kind != new_kind:
            told.append(f"space of {name}: {old_kind} there, {new_kind} asked for")
    return told
