"""Record of a search, written as `search.json`.

A record contains everything that the page and the findings show.  It is derived from the trial
history and run directories of a search, and is free of torch, optuna and open files.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from t2t_torch.search_space import AnyValue

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


@dataclasses.dataclass(frozen=True)
class SearchRecord:
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

    def loss_of(self, value: float | None) -> float:
        """Returns a value, negated if higher is better; None becomes the worst value."""
        if value is None or not math.isfinite(value):
            return math.inf
        return value if self.lower_is_better else -value

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
