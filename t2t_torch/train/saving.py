"""When a run is saved, and what becomes of a save that fails."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_torch.checkpoint.checkpoint import Snapshot
from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.distributed.network import share_buffers
from t2t_torch.distributed.process_group import SideChannel

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import TrainerState
    from t2t_torch.distributed.process_group import World
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Hook


# Saves beside training: a thread writes what was copied, and the run goes on.


class Saver:
    """Writes one snapshot after the other.

    The thread is one that never holds up the end of a process: a run that ends in order calls
    `wait` or `close`; one that does not leaves nothing half that looks whole.

    Args:
      directory: where they are written.
      asynchronous: in a thread; else `save` returns when it is done.
    """

    def __init__(self, directory: CheckpointDirectory, *, asynchronous: bool = True) -> None:
        self._directory = directory
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._failures: list[Exception] = []
        self._last: Exception | None = None  # of the last save, None if it went well

    def save(self, snapshot: Snapshot) -> None:
        """Waits as `settle` until the save before has ended, then begins this one.

        How it ends tell `failure` and `wait`.
        """
        self._join()
        self._last = None
        if not self._asynchronous:
            self._write(snapshot)
            return
        self._thread = threading.Thread(
            target=self._write, args=(snapshot,), name="t2t-checkpoint", daemon=True
        )
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def settle(self, *, replace: bool = False) -> None:
        """Waits until the save under way has ended, however it ends: see `failure`.

        Args:
          replace: a later state is to be saved: if the disk fails, no other try is waited for.
        """
        self._directory.replace(replace)
        self._join()
        self._directory.replace(False)

    def failure(self) -> SaveError | None:
        """Returns, once, the oldest failure that nobody was told of yet; waits for nothing.

        Raises:
          Exception: a save failed for a reason that is a defect of the program.
        """
        if not self._failures:
            return None
        return self._told(self._failures.pop(0))

    def wait(self) -> None:
        """Waits until the last save has ended.

        Raises:
          SaveError: it failed; `failure` does not tell it again.
        """
        self._join()
        error, self._last = self._last, None
        if error is not None:
            if error in self._failures:
                self._failures.remove(error)
            raise self._told(error)

    def close(self, *, warn: bool = True) -> None:
        """Waits for the save under way, not for a failing disk to recover.

        Args:
          warn: of failures; of processes that save together one does.
        """
        self._directory.give_up()
        self._join()
        for error in self._failures if warn else ():
            print(f"WARNING: a step IS NOT SAVED: {error}", file=sys.stderr, flush=True)
        self._failures.clear()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._directory.save(snapshot)
        except Exception as error:  # handed to the thread that trains
            if isinstance(error, SaveError):
                _let_go(error)
            self._last = error
            self._failures.append(error)

    @staticmethod
    def _told(error: Exception) -> SaveError:
        if not isinstance(error, SaveError):
            raise error
        return error


def _let_go(error: BaseException | None) -> None:
    """Drops the frames of an error and its causes: they hold the snapshot, as large as the run."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__


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
        self, run: TrainState, state: TrainerState, hooks: Sequence[Hook], *, must_succeed: bool
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
        state.task = run.task.state.save(self._world)
        state.hooks = {type(hook).__name__: hook.state() for hook in hooks}
        if must_succeed or self.step != state.step:
            if run.is_sharded:
                self._save_share(run, state, must_succeed=must_succeed)
            else:
                self._save_whole(run, state, must_succeed=must_succeed)
        self._at = time.monotonic()
        self._asked = False
        self.step = state.step

    def _save_whole(self, run: TrainState, state: TrainerState, *, must_succeed: bool) -> None:
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

    def _save_share(self, run: TrainState, state: TrainerState, *, must_succeed: bool) -> None:
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
