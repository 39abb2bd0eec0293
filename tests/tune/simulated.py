"""Whole searches without training: what a trial reaches is a function of it and of the step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from t2t_torch.search_space import Double, Space
from t2t_torch.tune.search_plan import SearchPlan
from t2t_torch.tune.shared_search import SearchState, SearchTask

SPACE = Space({"x": Double(0.0, 1.0)})


def plan(**changes: Any) -> SearchPlan:
    """A search of 16 trials of 400 steps."""
    fields = {
        "searcher": "adaptive_asha",
        "metric": "loss",
        "lower_is_better": True,
        "length": 400,
        "max_trials": 16,
    }
    return SearchPlan(**{**fields, **changes})


class Simulation:
    """A search and its ledger, of which an event may be read again.

    Args:
      searcher: at its beginning.
      reached: (task) -> the value at its rung, None if it is not finite; "fail" or "invalid".
    """

    def __init__(
        self,
        searcher: SearchState,
        reached: Callable[[SearchTask], float | str | None],
        parallel: int = 1,
    ) -> None:
        self.searcher = searcher
        self.events: list[dict[str, Any]] = []
        self._reached = reached
        self._parallel = parallel
        self._running: list[SearchTask] = []
        self._rng = random.Random(parallel)

    def add(self, **event: Any) -> bool:
        event = {"tuner": "t", "place": "p", **event}
        self.events.append(event)
        return self.searcher.apply(event)

    def steps(self) -> Iterator[SearchTask]:
        """Yields each task when it ends; of several at once, any of them is the next to end."""
        while True:
            while len(self._running) < self._parallel:
                task = self.searcher.next_task(lambda trial: True)
                if task is None:
                    break
                new = {"hparams": task.hparams, "is_default": task.is_default}
                more = new if task.is_new else {}
                assert self.add(do="take", trial=task.trial, to=task.to, **more)
                self._running.append(task)
            if not self._running:
                return
            task = self._running.pop(self._rng.randrange(len(self._running)))
            self.end(task)
            yield task

    def end(self, task: SearchTask) -> None:
        value = self._reached(task)
        if value in ("fail", "invalid"):
            assert self.add(do=value, trial=task.trial, step=0, curve=[], why="so")
        else:
            curve = [[task.to, value]]
            more = {"step": task.to, "value": value, "curve": curve, "seconds": 1.0}
            assert self.add(do="report", trial=task.trial, **more)

    def run(self) -> SearchState:
        for _ in self.steps():
            pass
        return self.searcher


def simulated(
    reached: Callable[[SearchTask], float | str | None], parallel: int = 1, **changes: Any
):
    """Runs a search to its end; returns the simulation."""
    simulation = Simulation(SearchState(plan(**changes), SPACE), reached, parallel)
    simulation.run()
    return simulation
