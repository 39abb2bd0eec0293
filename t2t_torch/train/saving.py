"""When a run is saved, and what becomes of a save that fails."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.checkpoint.saver import Saver

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.hook import Hook
    from t2t_torch.train.learner import Learner
    from t2t_torch.train.run_config import RunConfig


class Saving:
    """Hands what is to be saved to the disk, from the leader, while the run goes on.

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
        self._config = config
        self._world = world
        self._at = time.monotonic()

    def is_due(self) -> bool:
        """Whether the last save is as long ago as `save_checkpoints_secs`."""
        return 0 < self._config.save_checkpoints_secs <= time.monotonic() - self._at

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
        run.tally.note(state)
        state.loss_scale, state.loss_scale_steps = run.precision.state()
        state.hooks = {type(hook).__name__: hook.state() for hook in hooks}
        if run.is_sharded:  # the parts of all processes
            snapshot = run.snapshot(state, keep=self._world.leads)
        with self._world.leader_first() as leads:
            if leads and (must_succeed or self.step != state.step):
                self.tell_failure()
                self._saver.save(snapshot if run.is_sharded else run.snapshot(state))
                if must_succeed:
                    self._saver.wait()
        self._at = time.monotonic()
        self.step = state.step

    def finish(self) -> None:
        """Waits, in the leader, for the save under way; tells of its failure as training does.

        Raises:
          SaveError: it failed, and `config.on_save_error` is "fail".
        """
        try:
            self._saver.wait()
        except SaveError as error:
            self._failed(error)

    def tell_failure(self) -> None:
        """Warns of a save that failed since this was last asked.

        Raises:
          SaveError: there is one, and `config.on_save_error` is "fail".
        """
        error = self._saver.failure()
        if error is not None:
            self._failed(error)

    def close(self) -> None:
        """Waits for the save under way, and not for a disk that fails to recover."""
        self._saver.close()

    def _failed(self, error: SaveError) -> None:
        self.failures += 1
        if self._config.on_save_error == "fail":
            raise error
        print(f"WARNING: a step IS NOT SAVED: {error}", file=sys.stderr, flush=True)
