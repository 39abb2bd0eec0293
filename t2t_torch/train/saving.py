"""When a run is saved, and what becomes of a save that fails."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.checkpoint.saver import Saver
from t2t_torch.compute.network import share_buffers
from t2t_torch.compute.side_channel import SideChannel

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.hook import Hook
    from t2t_torch.train.learner import Learner
    from t2t_torch.train.run_config import RunConfig


class Saving:
    """Hands what is to be saved to the disk while the run goes on.

    The leader does it; where weights are divided, each process does it with its own parts.

    Attributes:
      step: that was saved last, or was tried to.
      failures: saves that did not succeed.

    Args:
      checkpoints: where.
      config: how often by the clock, in a thread or not, and whether a failure ends the run.
      world: the processes that train together.
    """

    def __init__(self, checkpoints: CheckpointDirectory, config: RunConfig, world: World) -> None:
        self.step = 0
        self.failures = 0
        self._saver = Saver(checkpoints, asynchronous=config.async_save)
        self._checkpoints = checkpoints
        self._config = config
        self._world = world
        self._at = time.monotonic()
        self._asked = False
        self._fatal: SaveError | None = None  # that the run ends with

    def is_due(self) -> bool:
        """Whether the last save is as long ago as `save_checkpoints_secs`; once for each save.

        What is asked for is agreed on a step later: asked again till then, it would be done twice.
        """
        every = self._config.save_checkpoints_secs
        if self._asked or not 0 < every <= time.monotonic() - self._at:
            return False
        self._asked = True
        return True

    def save(
        self, run: Learner, state: TrainerState, hooks: Sequence[Hook], *, must_succeed: bool
    ) -> None:
        """Saves a step, if it was not yet; returns while the disk still works on it.

        Args:
          run: what is saved, together with
          state: where it stands; the counts that live on the device are noted there.
          hooks: that remember something.
          must_succeed: waits until the checkpoint is whole.

        Raises:
          SaveError: it could not be written, and must be.
        """
        share_buffers(run.model, self._world.size)
        run.tally.note(state)
        state.loss_scale, state.loss_scale_steps = run.precision.state()
        state.task = run.task.state(run.optimizer, self._world)
        state.hooks = {type(hook).__name__: hook.state() for hook in hooks}
        if must_succeed or self.step != state.step:
            if run.is_sharded:
                self._save_share(run, state, must_succeed=must_succeed)
            else:
                self._save_whole(run, state, must_succeed=must_succeed)
        self._at = time.monotonic()
        self._asked = False
        self.step = state.step

    def _save_whole(self, run: Learner, state: TrainerState, *, must_succeed: bool) -> None:
        with self._world.leader_first() as leads:
            if not leads:
                return
            if must_succeed and self.step == state.step and self._saver.is_busy:
                self._saver.wait()  # this very step is on its way
                return
            self._settle(must_succeed=must_succeed)
            self._look_back(must_succeed=must_succeed)
            self._saver.save(run.snapshot(state))  # after the wait: one at a time is in memory
            if must_succeed:
                self._saver.wait()

    def _save_share(self, run: Learner, state: TrainerState, *, must_succeed: bool) -> None:
        """Each process hands over its own parts; what fails in one fails in all."""
        self._settle(must_succeed=must_succeed)
        with self._world.leader_first() as leads:
            if leads:
                self._look_back(must_succeed=must_succeed)
        if not self._checkpoints.is_joined:
            self._checkpoints.join(SideChannel.open())
        self._saver.save(run.snapshot(state))
        if must_succeed:
            with self._world.leader_first() as leads:
                if leads:
                    self._saver.wait()

    def _settle(self, *, must_succeed: bool) -> None:
        """Waits for the save before.

        One that fails is not tried again, as training would stand still meanwhile: the later state
        is worth more.  If a failure ends the run it is tried to the end, so that the run ends by
        it; but not if the run ends anyway.
        """
        replace = must_succeed or self._config.on_save_error != "fail"
        self._saver.settle(replace=replace)

    def _look_back(self, *, must_succeed: bool) -> None:
        """Tells of failures before the next save; they end no run whose last save this is.

        Raises:
          SaveError: as `tell_failure`.
        """
        if not must_succeed:
            self.tell_failure()
        elif self.has_failed():
            self._warn(self._fatal)
            self._fatal = None

    def finish(self) -> None:
        """Waits, in the leader, for the save under way; tells of its failure as training does.

        Raises:
          SaveError: it failed, and `config.on_save_error` is "fail".
        """
        self._saver.settle()
        self.tell_failure()

    def tell_failure(self) -> None:
        """Warns of saves that failed since this was last asked.

        Raises:
          SaveError: there is one, the first, and `config.on_save_error` is "fail".
        """
        if self.has_failed() and self._fatal is not None:
            raise self._fatal

    def has_failed(self) -> bool:
        """Warns as `tell_failure`; returns whether the run must end, instead of raising."""
        while (error := self._saver.failure()) is not None:
            self._note(error)
        return self._fatal is not None

    def close(self) -> None:
        """Waits for the save under way, and not for a disk that fails to recover."""
        self._saver.close(warn=self._world.leads)

    def _note(self, error: SaveError) -> None:
        self.failures += 1
        if self._config.on_save_error != "fail":
            self._warn(error)
        elif self._fatal is None:  # the first one is the cause of what follows
            self._fatal = error

    @staticmethod
    def _warn(error: SaveError | None) -> None:
        print(f"WARNING: a step IS NOT SAVED: {error}", file=sys.stderr, flush=True)
