"""Pace of a run: its position in the learning-rate schedule, where time or patience ends it.

A schedule is a function of a position from 0 to `train_steps`.  As long as nothing but the steps
ends a run, the position is the number of steps done.  Where `--train_seconds` will end it before,
each step advances the position further, so that the schedule ends when the time does; where
patience has ended, the rest of the schedule follows in a fraction of the steps done so far.  The
plan is made again as the speed changes.  All plans are recorded in the run directory, and a resumed
run repeats those that it had made: its steps are the same.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch.files import read_lines

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.checkpoint import TrainerState

NAME = "pace.jsonl"
_FIRST_STEPS = 5  # of a process, which are slow and no measure of its speed
_SHARE_OF_PLAN = 0.02  # of the time limit, from one plan to the next
_LEAST_SECONDS = 0.5  # from one plan to the next
_MARGIN = 0.98  # of the remaining time, for which steps are planned
_ANNEALING = 0.2  # steps after the end of patience, as a share of the steps done
_GRACE = 1.1  # times the limit: a run whose plan was too long is cut off there


class PacePlan(NamedTuple):
    """A plan from a step on.

    Attributes:
      step: steps done when it was made.
      position: position in the schedule at this step.
      end: step at which the schedule ends, and the run.
      train_steps: steps of the schedule.
      train_seconds: time limit; 0: none.
      is_annealing: True if patience has ended; then `end` moves no further away.
    """

    step: int
    position: float
    end: int
    train_steps: int
    train_seconds: int
    is_annealing: bool = False


class Pace:
    """Position of a run in its schedule, and the step at which it ends.

    Args:
      directory: the run directory.
      train_steps: steps of the schedule.
      train_seconds: seconds of training after which the run ends; 0: no limit.
      state: position of the run.
    """

    def __init__(
        self, directory: Path, train_steps: int, train_seconds: int, state: TrainerState
    ) -> None:
        step, seconds = state.step, state.seconds
        self._file = directory / NAME
        self._steps, self._limit = train_steps, train_seconds
        known = _read(self._file)
        past = [one for one in known if one.step <= step]
        self._replayed = [one for one in known if one.step > step and self._is_mine(one)]
        self._is_continued = False  # with another length or time limit than before
        if past and self._is_mine(past[-1]):
            self._plan = past[-1]
        else:  # a new run, or one with another length than before
            position = float(step)
            if past and train_seconds:
                plan = past[-1]  # of a schedule of another length
                position = _position(plan, step) * train_steps / plan.train_steps
            if position >= train_steps > step:  # more time lets the schedule rise again
                position = train_steps * min(1.0, seconds / train_seconds)
            self._plan = self._of(step, position)
            self._is_continued = bool(past)
        self._first = step + _FIRST_STEPS
        self._measured = (0, 0.0)  # steps and seconds at the last plan
        self._seconds_of_a_step = 0.0

    def begin(self, world: World) -> None:
        """Records the plan of a run that continues in another way, before its first step."""
        if self._is_continued:
            self._take(self._plan, world)

    def _of(self, step: int, position: float) -> PacePlan:
        """Returns the plan of a run that only its steps end."""
        end = step + math.ceil(max(0.0, self._steps - position))
        return PacePlan(step, position, end, self._steps, self._limit)

    def give_up_annealing(self, step: int) -> None:
        """Continues a run whose patience is longer now."""
        self._plan, self._replayed = self._of(step, float(step)), []

    def _is_mine(self, plan: PacePlan) -> bool:
        is_alike = plan.is_annealing or plan.train_seconds == self._limit
        return plan.train_steps == self._steps and is_alike

    @property
    def end(self) -> int:
        """The step at which the run ends, as it is planned now."""
        return self._plan.end

    @property
    def is_annealing(self) -> bool:
        """True if patience has ended, and the schedule runs to its end."""
        return self._plan.is_annealing

    @property
    def is_shortened(self) -> bool:
        """True if the time limit ends the run before its steps."""
        return self.end < self._steps and not self.is_annealing

    def position(self, step: float) -> float:
        """Returns the position in the schedule after some steps."""
        return _position(self._plan, step)

    def is_out_of_time(self, state: TrainerState) -> bool:
        """Returns whether a run must be cut off, as its plan did not end it in time."""
        grace = _GRACE if self.is_shortened else 1.0
        return 0 < grace * self._limit <= state.seconds

    def is_due(self, state: TrainerState) -> bool:
        """Returns whether a plan is to be made after this step."""
        step, seconds = state.step, state.seconds
        while self._replayed and self._replayed[0].step < step:
            del self._replayed[0]
        if self._replayed:
            first = self._replayed[0]
            return first.step == step and first.is_annealing is self.is_annealing
        if not self._limit or step < self._first:
            return False
        before, at = self._measured
        if not before:
            self._measured = step, seconds
            return False
        return seconds - at >= max(_LEAST_SECONDS, _SHARE_OF_PLAN * self._limit)

    def replan(self, state: TrainerState, world: World) -> None:
        """Takes the next recorded plan, or makes one, by the speed since the last plan; the same in
        all processes.
        """
        if self._replayed and self._replayed[0].step == state.step:
            self._plan = self._replayed.pop(0)
            return
        if (end := world.from_leader(self._estimated_end(state))) != self.end:
            position = self.position(state.step)
            self._take(self._plan._replace(step=state.step, position=position, end=end), world)

    def _estimated_end(self, state: TrainerState) -> int:
        step, seconds = state.step, state.seconds
        before, at = self._measured
        self._measured = step, seconds
        each = (seconds - at) / max(1, step - before)
        known = self._seconds_of_a_step
        self._seconds_of_a_step = (known + each) / 2 if known else each
        left = _MARGIN * (self._limit - seconds) / max(1e-9, self._seconds_of_a_step)
        steps = min(self._steps - self.position(step), left)
        end = step + max(1, math.ceil(steps))
        return min(end, self.end) if self.is_annealing else end

    def anneal(self, state: TrainerState, world: World) -> None:
        """Lets the run end soon, by a schedule that falls to its end."""
        if self._replayed and self._replayed[0].is_annealing:
            self._plan = self._replayed.pop(0)
            return
        step = state.step
        end = min(self.end, step + max(1, round(_ANNEALING * step)))
        plan = PacePlan(step, self.position(step), end, self._steps, self._limit, is_annealing=True)
        self._take(plan, world)

    def _take(self, plan: PacePlan, world: World) -> None:
        self._plan = plan
        if world.leads:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(plan._asdict())}")  # a torn line stays alone


def _position(plan: PacePlan, step: float) -> float:
    """Returns the position after some steps by a plan."""
    done, left, steps = step - plan.step, plan.train_steps - plan.position, plan.end - plan.step
    return plan.position + (done if steps == left else done * left / max(1, steps))


def _read(file: Path) -> list[PacePlan]:
    """Returns the recorded plans; a plan replaces those of later steps before it in the file."""
    plans: list[PacePlan] = []
    for line in read_lines(file) if file.exists() else ():
        try:
            plan = PacePlan(**json.loads(line))
        except (ValueError, TypeError):  # empty, or incomplete after a kill
            continue
        plans = [one for one in plans if one.step < plan.step]
        plans.append(plan)
    return plans
