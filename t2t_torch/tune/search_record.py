"""Record of a search, written as `search.json`.

A record says all that the page and the findings tell; it is made of a search's ledger and of the
run directories of its trials, and holds no torch, no optuna and no open file.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from t2t_torch.errors import DataError
from t2t_torch.search_space import AnyValue

State = Literal["running", "paused", "completed", "stopped", "failed"]
"""running: it trains, or is next; paused: it waits to go on; completed: it has its full length;
stopped: a rung has ended it; failed: it raised, or its hyperparameters were refused."""

STATES: tuple[State, ...] = ("running", "paused", "completed", "stopped", "failed")


@dataclasses.dataclass(frozen=True)
class SpaceAxis:
    """One searched hyperparameter.

    Attributes:
      name: dotted.
      kind: "const", "int", "double", "log" or "categorical".
      log: whether its values are best seen on a logarithmic axis.
      low: the least value; None of a categorical one.
      high: the greatest value; None of a categorical one.
      values: of a categorical one, in their order; of a constant its only one.
    """

    name: str
    kind: str
    log: bool
    low: float | None = None
    high: float | None = None
    values: tuple[AnyValue, ...] = ()


@dataclasses.dataclass(frozen=True)
class TrialRecord:
    """One training of a search.

    Attributes:
      number: from 0.
      state: see `State`.
      hparams: dotted name -> value, of the searched ones.
      step: optimizer steps that are done, as far as is known.
      length: optimizer steps of a whole training.
      value: of the metric at the newest evaluation; None if there is none, or it is not finite.
      curve: (step, value) of each evaluation; None where the value is not finite.
      seconds: of training, restarts counted.
      error: why it failed; else empty.
      output_dir: its run directory.
      restarts: how often it was begun again after a failure.
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

    @property
    def evaluated(self) -> int:
        """The step of the newest evaluation; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0


@dataclasses.dataclass(frozen=True)
class SearchRecord:
    """A search, over or not.

    Attributes:
      name: what is trained: the problem and model, or the trial's class.
      searcher: "adaptive_asha", "random", ...
      metric: that is searched for.
      lower_is_better: of the metric.
      seed: of the search.
      space: what is searched, constants included.
      trials: by number; the default is one of them.
      default: the unchanged set, if it was run; else None.
      seconds: of training, summed over the trials.
      began: seconds since 1970.
      over: whether nothing is left to do.
      output_dir: of the search.
      command: that begins, and goes on with, the search.
      model: the registered name; empty for a PyTorchTrial.
      hparams_set: the set that the trials change; empty for a PyTorchTrial.
      hparams_changes: to the set, the same for all trials (`--hparams`).
      problem: the registered name; empty for a PyTorchTrial.
      trial: what `--trial` was; empty for a problem.
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
        """The best of those that came furthest; None before the first evaluation.

        Values are compared at equal steps alone: a shorter training's value says something else.
        """
        valued = [one for one in self.trials if one.value is not None and one.state != "failed"]
        if not valued:
            return None
        furthest = max(one.evaluated for one in valued)
        return min(
            (one for one in valued if one.evaluated == furthest),
            key=lambda one: (self.loss_of(one.value), one.number),
        )

    @property
    def counts(self) -> dict[State, int]:
        """The number of trials in each state that some are in."""
        states = [one.state for one in self.trials]
        return {state: states.count(state) for state in STATES if state in states}

    def loss_of(self, value: float | None) -> float:
        """Returns a value turned so that less is better; None is the worst."""
        if value is None or not math.isfinite(value):
            return math.inf
        return value if self.lower_is_better else -value

    def to_json(self) -> str:
        """Writes the record."""
        return json.dumps(dataclasses.asdict(self), indent=1, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> SearchRecord:
        """Reads what `to_json` has written.

        Raises:
          DataError: it is something else.
        """
        try:
            fields = json.loads(text)
            trials = tuple(map(_trial, fields["trials"]))
            default = fields["default"]
            return cls(
                **{
                    **fields,
                    "space": tuple(_axis(axis) for axis in fields["space"]),
                    "trials": trials,
                    "default": None if default is None else _trial(default),
                    "output_dir": Path(fields["output_dir"]),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"this is no record of a search: {error!r}. Expected what t2t-tuner writes: "
                "t2t-tuner --output_dir=... --report_only"
            ) from error


def _axis(fields: Mapping[str, Any]) -> SpaceAxis:
    return SpaceAxis(**{**fields, "values": tuple(fields["values"])})


def _trial(fields: Mapping[str, Any]) -> TrialRecord:
    curve = tuple((int(step), value) for step, value in fields["curve"])
    return TrialRecord(**{**fields, "curve": curve, "output_dir": Path(fields["output_dir"])})


# Times of a search as people say them.


def duration(seconds: float) -> str:
    """Writes a time: "45 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
