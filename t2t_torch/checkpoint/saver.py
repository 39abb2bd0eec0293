"""Saves beside training: a thread writes what was copied, and the run goes on."""

from __future__ import annotations

import sys
import threading

from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.checkpoint.snapshot import Snapshot


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
