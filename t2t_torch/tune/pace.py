"""How fast a search goes on, and how long it still takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from t2t_torch.tune.search_record import SearchRecord, TrialRecord
from t2t_torch.tune.searcher import Searcher
from t2t_torch.tune.trial_state import TrialState


@dataclasses.dataclass
class _Held:
    """A training that runs: since when it is seen, and where its trial was then."""

    told: float
    since: float
    step: int


class Pace:
    """Seconds and steps of trainings alone: of a night between two tuners nothing is counted.

    A ledger tells the seconds of trainings that have ended.  Those of one that runs are counted
    from when it was first seen, and so are its steps.

    Args:
      clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, _Held] = {}

    def counted(self, searcher: Searcher, record: SearchRecord) -> SearchRecord:
        """Returns the record with the seconds of what trains now."""
        now = self._clock()
        trials = tuple(
            dataclasses.replace(one, seconds=one.seconds + self._seen(state, one, now))
            for state, one in zip(searcher.trials, record.trials, strict=True)
        )
        seconds = sum(one.seconds for one in trials)
        return dataclasses.replace(record, trials=trials, seconds=seconds)

    def _seen(self, state: TrialState, trial: TrialRecord, now: float) -> float:
        """Returns the seconds of a trial that its ledger does not tell yet."""
        if state.status != "held":
            self._held.pop(state.number, None)
            return 0.0
        held = self._held.get(state.number)
        if held is None or held.told != state.seconds:  # another training of the trial
            held = self._held[state.number] = _Held(state.seconds, now, trial.step)
        return now - held.since

    def seconds_left(self, searcher: Searcher, record: SearchRecord) -> float | None:
        """Estimates how long a search still takes; None before anything is known of its pace.

        What is to come is counted in steps: of the trials that train, to their next rung, and of
        those that are to begin, as many as those that are over have had.  So many trainings go on
        at once as do now.

        Args:
          searcher: the state of the search.
          record: that `counted` has returned.
        """
        done = sum(self._steps(state, record) for state in searcher.trials)
        if not done or record.seconds <= 0:
            return None
        over = [trial.step for trial in searcher.valid if trial.is_over]
        active = [trial for trial in searcher.valid if not trial.is_over]
        known = {trial.number: trial.step for trial in record.trials}
        mean = (sum(over) + _expected(searcher)) / (len(over) + 1)
        left = float(sum(max(trial.target - known[trial.number], 0) for trial in active))
        if searcher.will_begin:
            left += mean * (searcher.plan.max_trials - len(searcher.valid))
        at_once = max(sum(trial.status == "held" for trial in searcher.trials), 1)
        return record.seconds * left / done / at_once

    def _steps(self, state: TrialState, record: SearchRecord) -> int:
        """Returns the steps whose seconds are counted."""
        held = self._held.get(state.number)
        return state.step + (record.trials[state.number].step - held.step if held else 0)


def _expected(searcher: Searcher) -> float:
    """Returns the steps of a trial where at each rung one of so many goes on."""
    total, divisor = 0.0, searcher.plan.divisor
    for bracket in searcher.brackets:
        steps = [0, *bracket.lengths]
        parts = zip(steps[1:], steps, strict=False)
        total += bracket.trials * sum(
            (to - from_) / divisor**place for place, (to, from_) in enumerate(parts)
        )
    return total / sum(bracket.trials for bracket in searcher.brackets)
