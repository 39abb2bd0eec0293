"""What a search was asked to do: how trials are chosen, how long they are, by what they are ranked.

A plan does not change while a search goes on: it is the first entry of the search's ledger, and
whoever joins has to bring the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t2t_torch.errors import DataError, UsageError
from t2t_torch.tune.rungs import MODES, Bracket, bracket_rungs, brackets, most_rungs
from t2t_torch.tune.space import Space, Value

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
    default: Mapping[str, Value] | None = None

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
