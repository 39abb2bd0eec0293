"""What is known of one trial of a search, from its ledger."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from t2t_torch.tune.space import Value

Status = Literal["free", "held", "completed", "stopped", "failed", "invalid"]
"""free: waits for a tuner to train it on; held: a tuner does; the others are over."""


@dataclasses.dataclass
class TrialState:
    """One trial.

    Attributes:
      number: from 0.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged set, which no rung stops.
      bracket: number of its bracket.
      rung: to which it is on its way, or at which it ended.
      target: optimizer steps of that rung.
      status: see `Status`.
      tuner: who holds it, or held it last.
      place: where its run directory is; see `presence.py`.
      step: optimizer steps that are done and told.
      curve: (step, value) of each evaluation, None where it is not finite.
      value: the newest one.
      seconds: of training.
      restarts: how often it was begun again after a failure.
      why: it failed.
    """

    number: int
    hparams: Mapping[str, Value]
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
        """Whether it will not train any more."""
        return self.status not in ("free", "held")

    def loss(self, *, lower_is_better: bool) -> float:
        """Returns the newest value turned so that less is better; infinity if there is none."""
        if self.value is None or not math.isfinite(self.value):
            return math.inf
        return self.value if lower_is_better else -self.value

    def add_curve(self, curve: list[tuple[int, float | None]]) -> None:
        """Adds evaluations; one of the same step replaces what was known."""
        known = dict(self.curve)
        known.update(curve)
        self.curve = sorted(known.items())
