"""How an experiment's hyperparameters are chosen, how long is trained, and what is best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from t2t_torch.trial.config_section import Section
from t2t_torch.trial.lengths import UNITS, Length

_Number = Annotated[int, pydantic.Field(ge=1)]

SearcherName = Literal[
    "single", "random", "grid", "adaptive", "adaptive_simple", "adaptive_asha", "asha", "tpe"
]


def counted(value: Any) -> Any:
    """Reads {batches: 100}; leaves what it cannot read."""
    if isinstance(value, Mapping) and len(value) == 1:
        unit, amount = next(iter(value.items()))
        if unit in UNITS and isinstance(amount, int) and not isinstance(amount, bool):
            return Length(amount, unit)
    return value


def _length(value: Any) -> Length:
    found = counted(value)
    if not isinstance(found, Length) or found.amount < 1:
        raise ValueError(
            f"expected a whole number of {', '.join(UNITS)}, such as {{batches: 1000}}"
        )
    return found


class Searcher(Section):
    """How hyperparameters are chosen, how long is trained, and what is best.

    Attributes:
      name: the kind of search; `single` trains once.
      metric: a validation metric, a number; None: nothing is chosen by a metric.
      smaller_is_better: whether a smaller value of it is better.
      max_steps: length of the longest training, in steps of `batches_per_step` batches.
      max_length: the same in batches, records or epochs.
      max_time: the same in `time_metric`.
      time_metric: batches, records or epochs.
      target_trial_steps: as `max_steps`, by the name it has in `adaptive`.
      max_trials: trainings that are begun; `single` begins one.
      step_budget: of adaptive searches, in place of `max_trials`: steps of all trainings together.
      max_concurrent_trials: trainings at a time, at most.
      mode: of adaptive searches: how early bad trainings are stopped.
      divisor: of adaptive searches: one training of so many goes on to the next rung.
      max_rungs: of adaptive searches: the most rungs.
      bracket_rungs: of adaptive searches: rungs of each bracket; empty: by `mode`.
      source_checkpoint: a checkpoint or run directory of which weights are taken to begin with.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "num_rungs": "write max_rungs.",
        "source_trial_id": "there are no such numbers here. Write source_checkpoint: and a path.",
        "source_checkpoint_uuid": "write source_checkpoint: and a path.",
    }

    name: SearcherName = "single"
    metric: Annotated[str, pydantic.Field(min_length=1)] | None = None
    smaller_is_better: bool = True
    max_steps: _Number | None = None
    max_length: Annotated[Length | None, pydantic.BeforeValidator(_length)] = None
    max_time: _Number | None = None
    time_metric: Literal["batches", "records", "epochs"] | None = None
    target_trial_steps: _Number | None = None
    max_trials: _Number | None = None
    step_budget: _Number | None = None
    max_concurrent_trials: _Number = 16
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    divisor: Annotated[float, pydantic.Field(gt=1)] = 4
    max_rungs: _Number = 5
    bracket_rungs: tuple[_Number, ...] = ()
    source_checkpoint: str | None = None

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Searcher:
        ways = ("max_steps", "max_length", "max_time", "target_trial_steps")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both say how long to train: keep one of them")
        if (self.max_time is None) != (self.time_metric is None):
            raise ValueError(
                "max_time needs time_metric (batches, records or epochs), and time_metric max_time"
            )
        if self.step_budget is not None and self.max_trials is not None:
            raise ValueError("step_budget and max_trials both say how much to train: keep one")
        if self.step_budget is not None and (self.length is None or self.length.unit != "steps"):
            raise ValueError("step_budget needs target_trial_steps, the steps of one training")
        if self.name != "single" and self.metric is None:
            raise ValueError(
                f"a search ({self.name}) needs metric, the validation metric that says what is best"
            )
        return self

    @property
    def length(self) -> Length | None:
        """How long the longest training is; None if the configuration does not say."""
        steps = self.max_steps or self.target_trial_steps
        if steps is not None:
            return Length(steps, "steps")
        if self.max_time is not None and self.time_metric is not None:
            return Length(self.max_time, self.time_metric)
        return self.max_length

    @property
    def trials(self) -> int | None:
        """The number of trainings to begin: `max_trials`, or as many as `step_budget` pays for.

        Determined 0.12 shares the budget among the brackets; in each, a training that begins costs
        its part of the steps of all rungs (master/pkg/searcher/asha.go).
        """
        from t2t_torch.tune.rungs import bracket_rungs, rung_lengths  # --help does without it

        if self.step_budget is None or self.length is None:
            return self.max_trials
        rungs = list(self.bracket_rungs) or bracket_rungs(self.mode, self.max_rungs)
        total = 0
        for count in rungs:
            lengths, before, steps = rung_lengths(count, self.length.amount, self.divisor), 0, 0
            for place, length in enumerate(lengths):
                steps += (length - before) * max(int(self.divisor ** (count - 1 - place)), 1)
                before = length
            first = max(int(self.divisor ** (count - 1)), 1)
            total += max(int(self.step_budget // len(rungs) / max(steps, 1) * first), 1)
        return total
