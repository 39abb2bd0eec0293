"""Schedules: in which order a run is trained, evaluated and decoded."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.train.run_config import SCHEDULES

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator

POLL_SECONDS = 5.0


class Experiment:
    """Runs a schedule over an estimator.

    Args:
      estimator: what trains and evaluates.
      decode: called after each evaluation of `train_eval_and_decode`, in all processes.
      wait: called with seconds when there is nothing to do yet.
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        decode: Callable[[], None] = lambda: None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.estimator = estimator
        self.config = estimator.config
        self._decode = decode
        self._wait = wait

    def run(self, schedule: str) -> None:
        """Runs one of `SCHEDULES`.

        Raises:
          UsageError: there is no such schedule.
        """
        if schedule not in SCHEDULES:
            raise UsageError(
                f"there is no --schedule={schedule}. Schedules: {', '.join(SCHEDULES)}."
            )
        getattr(self, schedule)()

    def continuous_train_and_eval(self) -> None:
        """Trains; evaluates every `local_eval_frequency` steps, and at the end."""
        self._train_in_turns(lambda: None)

    def train_eval_and_decode(self) -> None:
        """Trains; evaluates and decodes every `local_eval_frequency` steps, and at the end."""
        self._train_in_turns(self._decode)

    def train(self) -> None:
        """Trains, and evaluates nothing."""
        if not self._is_done():
            self.estimator.train(self.config.train_steps)

    def evaluate(self) -> None:
        """Evaluates the newest checkpoint once.

        Raises:
          CheckpointError: there is none.
        """
        if self.estimator.restore_newest() is None:
            raise CheckpointError(
                f"'{self.estimator.directory.path}' has no checkpoint to evaluate. "
                "Train first: --schedule=train"
            )
        self.estimator.evaluate()

    def continuous_eval(self) -> None:
        """Evaluates each new checkpoint, up to that of `train_steps`, or till none comes."""
        seen = -1
        patience = self.config.eval_timeout_mins * 60.0
        waited = 0.0
        while seen < self.config.train_steps and not self.estimator.is_asked_to_stop():
            newest = self.estimator.restore_newest(beyond=seen)
            if newest is not None:
                self.estimator.evaluate()
                seen, waited = newest.step, 0.0
            elif waited >= patience:
                self.estimator.say(f"no new checkpoint for {self.config.eval_timeout_mins} minutes")
                return
            else:
                self._wait(POLL_SECONDS)
                waited += POLL_SECONDS

    def test(self) -> None:
        """Trains one step, if the run is not done, and evaluates: whether all fits together."""
        if not self._is_done():
            self.estimator.train(self.estimator.state.step + 1)
        if not self.estimator.signal:
            self.estimator.evaluate()

    def _train_in_turns(self, then: Callable[[], None]) -> None:
        self._is_done()  # says so; a last evaluation is still due
        estimator = self.estimator
        turn = self.config.local_eval_frequency or self.config.train_steps
        while True:
            next_turn = (estimator.state.step // turn + 1) * turn
            estimator.train(min(next_turn, self.config.train_steps), must_save=False)
            if estimator.signal:
                return
            estimator.evaluate()
            if estimator.signal:
                return
            then()
            if estimator.state.step >= self.config.train_steps:
                return

    def _is_done(self) -> bool:
        self.estimator.begin()
        step = self.estimator.state.step
        if step < self.config.train_steps:
            return False
        self.estimator.say(
            f"--train_steps={self.config.train_steps} counts from the beginning of the run, which "
            f"is at step {step} already; raise it to train on"
        )
        return True
