"""Timing of checkpoints, background saves, and failed saves."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from t2t_torch import reporter
from t2t_torch.distributed.network import share_buffers
from t2t_torch.errors import UsageError
from t2t_torch.remote import url_of
from t2t_torch.run.checkpoint import Snapshot
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.checkpoint import TrainerState
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Hook


def saves_at(config: RunConfig, step: int) -> bool:
    """Returns True if a checkpoint is due at a step; others are due by time."""
    every = (config.local_eval_frequency, config.save_checkpoints_steps)
    return any(steps > 0 and step % steps == 0 for steps in every)


class Saver:
    """Writes snapshots one after the other.

    The thread never delays the end of a process: a run that ends normally calls `wait` or `close`;
    otherwise no partial checkpoint looks complete.

    Args:
      directory: directory to write to.
      asynchronous: True to write in a thread; otherwise `save` returns when the snapshot is
        written.
    """

    def __init__(self, directory: CheckpointDirectory, *, asynchronous: bool = True) -> None:
        self._directory = directory
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._failures: list[Exception] = []
        self._last: Exception | None = None  # of the last save, None if it succeeded

    def save(self, snapshot: Snapshot) -> None:
        """Waits for the previous save like `settle`, then starts this one.

        `failure` and `wait` report the result.
        """
        self._join()
        self._last = None
        if not self._asynchronous:
            self._write(snapshot)
            return
        run = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._write, snapshot), name="t2t-checkpoint", daemon=True
        )
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """True if a save is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def settle(self, *, replace: bool = False) -> None:
        """Waits until the current save has ended, successfully or not: see `failure`.

        Args:
          replace: True if a later state will be saved: a failing save is not retried.
        """
        self._directory.retries.is_replaced = replace
        self._join()
        self._directory.retries.is_replaced = False

    def failure(self) -> SaveError | None:
        """Returns the oldest unreported failure, once; does not wait.

        Raises:
          Exception: a save failed because of a bug in the program.
        """
        if not self._failures:
            return None
        return self._as_save_error(self._failures.pop(0))

    def wait(self) -> None:
        """Waits until the last save has ended.

        Raises:
          SaveError: it failed; `failure` does not report it again.
        """
        self._join()
        error, self._last = self._last, None
        if error is not None:
            if error in self._failures:
                self._failures.remove(error)
            raise self._as_save_error(error)

    def close(self, *, warn: bool = True) -> None:
        """Waits for the current save, but not for a failing disk to recover.

        Args:
          warn: True to print failures; only one of several processes that save together does.
        """
        self._directory.retries.give_up()
        self._join()
        for error in self._failures if warn else ():
            reporter.message(f"warning: a step IS NOT SAVED: {error}")
        self._failures.clear()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._directory.save(snapshot)
        except Exception as error:  # passed to the training thread
            if isinstance(error, SaveError):
                _let_go(error)
            self._last = error
            self._failures.append(error)

    @staticmethod
    def _as_save_error(error: Exception) -> SaveError:
        if not isinstance(error, SaveError):
            raise error
        return error


def _let_go(error: BaseException | None) -> None:
    """Clears the frames of an error and its causes: they hold the snapshot, which is large."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__


class Saving:
    """Saves checkpoints while the run continues.

    The leader saves; with sharded weights, each process saves its own shards.

    Attributes:
      step: step of the last save or attempt.
      failures: number of failed saves.

    Args:
      checkpoints: directory of the checkpoints.
      config: time between saves, use of a thread, and whether a failure ends the run.
      world: the training processes.
    """

    def __init__(self, checkpoints: CheckpointDirectory, config: RunConfig, world: World) -> None:
        self.step = 0
        self.failures = 0
        self._saver = Saver(checkpoints, asynchronous=config.async_save)
        self._checkpoints = checkpoints
        self._config = config
        self._world = world
        self._at = time.monotonic()
        self._is_requested = False
        self._fatal: SaveError | None = None  # the error that ends the run

    def is_due(self) -> bool:
        """Returns True once per save when the last save is `save_checkpoints_secs` old.

        Processes agree on a save one step later, so a repeated True would save twice.
        """
        every = self._config.save_checkpoints_secs
        if self._is_requested or not 0 < every <= time.monotonic() - self._at:
            return False
        self._is_requested = True
        return True

    def save(
        self, run: TrainState, state: TrainerState, hooks: Sequence[Hook], *, must_succeed: bool
    ) -> None:
        """Saves a step, unless it was saved; returns while the checkpoint is still being written.

        Args:
          run: the training state to save.
          state: position of the run; counts on the device are written into it.
          hooks: hooks with a state to save.
          must_succeed: True to wait until the checkpoint is complete.

        Raises:
          SaveError: the checkpoint could not be written, and `must_succeed` or the settings require
            it.
        """
        share_buffers(run.model, self._world.size)
        self._note(run, state, hooks)
        state.task = run.task.state.save(self._world)
        if must_succeed or self.step != state.step:
            if run.is_sharded:
                self._save_share(run, state, must_succeed=must_succeed)
            else:
                self._save_whole(run, state, must_succeed=must_succeed)
        self._at = time.monotonic()
        self._is_requested = False
        self.step = state.step

    def save_alone(self, run: TrainState, state: TrainerState, hooks: Sequence[Hook]) -> None:
        """Saves the last completed step in the main process after another process was lost.

        Only where this step's state is there for certain: weights that are whole, and not on a GPU,
        whose exchanges fail late; no buffers that passes change; no state of a task; no digests,
        by which the other process may have found that the step is wrong.

        Args:
          run: the training state to save.
          state: position of the run.
          hooks: hooks with a state to save.
        """
        has_buffers = any(
            not isinstance(value, nn.Parameter)
            for value in run.model.state_dict(keep_vars=True).values()
        )
        may_differ = run.is_sharded or has_buffers or state.task or run.digests is not None
        is_certain = run.device.type == "cpu" and not may_differ
        if not (self._world.leads and is_certain and run.has_updated and self.step < state.step):
            return
        self._saver.settle(replace=True)
        self._note(run, state, hooks)
        self._saver.save(run.snapshot(state))
        try:
            self._saver.wait()
        except SaveError as error:
            self._warn(error)
        else:
            reporter.message(f"a process was lost: step {state.step} is saved")

    @staticmethod
    def _note(run: TrainState, state: TrainerState, hooks: Sequence[Hook]) -> None:
        """Writes the counts and scales of the run, and the state of its hooks, into a state."""
        run.meter.note(state)
        state.loss_scale, state.loss_scale_steps = run.precision.state()
        state.hooks = {type(hook).__name__: hook.state() for hook in hooks}

    def _save_whole(self, run: TrainState, state: TrainerState, *, must_succeed: bool) -> None:
        with self._world.leader_first() as leads:
            if not leads:
                return
            if must_succeed and self.step == state.step and self._saver.is_busy:
                self._saver.wait()  # this step is already being written
                return
            self._settle(must_succeed=must_succeed)
            self._look_back(must_succeed=must_succeed)
            self._saver.save(run.snapshot(state))  # after waiting: only one snapshot is in memory
            if must_succeed:
                self._saver.wait()

    def _save_share(self, run: TrainState, state: TrainerState, *, must_succeed: bool) -> None:
        """Saves the shards of each process; a failure in one process fails in all."""
        self._settle(must_succeed=must_succeed)
        with self._world.leader_first() as leads:
            if leads:
                self._look_back(must_succeed=must_succeed)
        if self._checkpoints.peers is None:
            url, processes = url_of(self._checkpoints.path), self._world.size
            if url and int(os.environ.get("LOCAL_WORLD_SIZE", processes)) < processes:
                raise UsageError(
                    f"--output_dir={url}: sharded weights of several nodes need a file system "
                    "that they share. Give one, or shard_weights=False."
                )
            self._checkpoints.peers = self._world.on_own_channel()
        self._saver.save(run.snapshot(state))
        if must_succeed:
            with self._world.leader_first() as leads:
                if leads:
                    self._saver.wait()

    def _settle(self, *, must_succeed: bool) -> None:
        """Waits for the previous save.

        A failed save is not retried, because training would stop meanwhile and the later state is
        more valuable.  If failures end the run, the save is retried to the end, unless the run ends
        anyway.
        """
        replace = must_succeed or self._config.on_save_error != "fail"
        self._saver.settle(replace=replace)

    def _look_back(self, *, must_succeed: bool) -> None:
        """Reports failures before the next save; a failure does not end a run at its last save.

        Raises:
          SaveError: see `report_failures`.
        """
        if not must_succeed:
            self.report_failures()
        elif self.has_failed():
            self._warn(self._fatal)
            self._fatal = None

    def finish(self) -> None:
        """Waits, in the leader, for the current save; reports its failure like during training.

        Raises:
          SaveError: it failed, and `config.on_save_error` is "fail".
        """
        self._saver.settle()
        self.report_failures()

    def report_failures(self) -> None:
        """Warns about saves that failed since the last call.

        Raises:
          SaveError: the first failure, if `config.on_save_error` is "fail".
        """
        if self.has_failed() and self._fatal is not None:
            raise self._fatal

    def has_failed(self) -> bool:
        """Warns like `report_failures`; returns True if the run must end, instead of raising."""
        while (error := self._saver.failure()) is not None:
            self.failures += 1
            if self._config.on_save_error != "fail":
                self._warn(error)
            elif self._fatal is None:  # the first error causes the others
                self._fatal = error
        return self._fatal is not None

    def close(self) -> None:
        """Waits for the current save, but not for a failing disk to recover."""
        self._saver.close(warn=self._world.leads)

    @staticmethod
    def _warn(error: SaveError | None) -> None:
        reporter.message(f"warning: a step IS NOT SAVED: {error}")
