"""Checkpoints: a folder per step, written so that a crash at any instant leaves a valid state.

    ckpt-<step>/
      model.safetensors      weights and buffers; a shared (tied) tensor stands once
      optimizer.safetensors  '<parameter>/<slot>'
      average.safetensors    the running mean of the weights, if the run keeps one
      trainer.json           `TrainerState`
      hparams.json, task.json, config.json   copies, so that a checkpoint explains itself
      MANIFEST.json          sizes and sha256 of the others and of the run's vocabularies; last
      model/, optimizer/, average/   of divided weights, in place of the files of these names:
        00001-of-00002.safetensors   the parts of the first of two processes, written by itself
    best.json                the watched metric of each checkpoint that was evaluated
    latest.json              a hint which is the newest; the folders are the truth

Saved under a temporary name, every file and folder flushed to the disk, read back, then renamed.
Loading goes from the newest to the oldest; a broken one is set aside as `ckpt-<step>.corrupt`.  If
there are checkpoints and none is whole, loading refuses: a run never starts from scratch over what
is left of it.  Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, MutableSequence, Sequence
from pathlib import Path
from typing import Any

import safetensors

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.deletion import Deletion
from t2t_torch.checkpoint.disk import free_name, rename, replace_file
from t2t_torch.checkpoint.explanations import (
    Explanations,
    checkpoint_folders,
    folders_set_aside,
)
from t2t_torch.checkpoint.patience import Patience
from t2t_torch.checkpoint.peers import Peers, together
from t2t_torch.checkpoint.ratings import Ratings
from t2t_torch.checkpoint.retention import Retention
from t2t_torch.checkpoint.share_writing import write_share
from t2t_torch.checkpoint.snapshot import Snapshot
from t2t_torch.data.staging import sync
from t2t_torch.errors import CheckpointError

_SCANS = 20  # of a directory whose checkpoints another process deletes meanwhile


class SaveError(CheckpointError):
    """A checkpoint could not be written; those before it are as they were."""


class CheckpointDirectory:
    """The checkpoints of one run directory.

    Args:
      path: the run directory.
      keep: newest checkpoints to keep; 0 keeps all.
      keep_best: best checkpoints to keep besides; the best one is kept in any case.
      keep_every: steps; checkpoints of its multiples are kept besides; 0: none.
      keep_every_n_hours: of training; one of each such period is kept besides; 0: none.
      is_hurried: whether the process was told to end: a save that fails is soon given up then.
      wait: called with seconds before a failed save is tried again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: int = 0,
        keep_best: int = 0,
        keep_every: int = 0,
        keep_every_n_hours: float = 0.0,
        is_hurried: Callable[[], bool] = lambda: False,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.path = Path(path)
        self._patience = Patience(is_hurried)
        self.wait = self._patience.wait if wait is None else wait
        self._ratings = Ratings(self.path)
        retention = Retention(keep, keep_best, keep_every, keep_every_n_hours)
        self._deletion = Deletion(retention, self._ratings)
        self._told: set[Path] = set()  # broken ones that stay where they are
        self._peers: Peers | None = None

    def list(self) -> list[Checkpoint]:
        """Returns the checkpoints, whole or not, oldest first."""
        return [Checkpoint(step, path) for step, path in checkpoint_folders(self.path).items()]

    def newest(self, *, repair: bool = False) -> Checkpoint | None:
        """Returns the newest whole checkpoint, None if there never was one.

        Args:
          repair: rename broken ones to `ckpt-<step>.corrupt`; for the process that holds the lock.

        Raises:
          CheckpointError: there are checkpoints, and all are broken.
        """
        for _ in range(_SCANS):
            # What was set aside before this scan; `_scan` lists those of its own.
            faults = [f"{path} was set aside before" for path in folders_set_aside(self.path)]
            try:
                newest = self._scan(faults, repair=repair)
            except _VanishedError:
                continue
            if newest is None and faults:
                raise CheckpointError(
                    f"every checkpoint of '{self.path}' is broken:\n  "
                    + "\n  ".join(faults)
                    + "\nNothing was overwritten. Restore one from a backup, or train in another "
                    "--output_dir."
                )
            if newest is not None and not self.is_gone_while(self._check_vocabularies, newest):
                return newest
            if newest is None:
                return None
        raise self._too_fast()

    def _scan(self, faults: MutableSequence[str], *, repair: bool) -> Checkpoint | None:
        """Returns the newest whole checkpoint of one listing; adds what is wrong with the others.

        Raises:
          _VanishedError: a checkpoint was deleted in between: there may be newer ones by now.
        """
        for checkpoint in reversed(self.list()):
            try:
                checkpoint.verify()
            except CheckpointError as fault:
                if not checkpoint.path.is_dir():
                    raise _VanishedError from fault
                faults.append(str(fault))
                self._report(checkpoint, fault, repair=repair)
                continue
            return checkpoint
        return None

    def read_newest(self, read: Callable[[Checkpoint], object]) -> Checkpoint | None:
        """Hands the newest whole checkpoint to `read`; the then newest again if it is deleted.

        For readers beside a trainer, which deletes old checkpoints at any moment.

        Returns:
          the checkpoint that was read; None if there never was one.

        Raises:
          CheckpointError: as `newest`, and what `read` raises of a checkpoint that is still there.
        """
        for _ in range(_SCANS):
            newest = self.newest()
            if newest is None or not self.is_gone_while(read, newest):
                return newest
        raise self._too_fast()

    def is_gone_while(self, read: Callable[[Checkpoint], object], checkpoint: Checkpoint) -> bool:
        """Calls `read`; returns whether it failed as the checkpoint was deleted meanwhile."""
        try:
            read(checkpoint)
        except (CheckpointError, OSError, safetensors.SafetensorError):
            if checkpoint.path.is_dir():
                raise
            return True
        return False

    def _too_fast(self) -> CheckpointError:
        return CheckpointError(
            f"the checkpoints of '{self.path}' are deleted faster than they can be read. Keep more "
            "of them: --keep_checkpoint_max of t2t-trainer."
        )

    def _report(self, checkpoint: Checkpoint, fault: CheckpointError, *, repair: bool) -> None:
        if checkpoint.path in self._told and not repair:
            return
        done = "ignored"
        if not repair:
            self._told.add(checkpoint.path)
        else:
            aside = free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.corrupt"))
            checkpoint.path.rename(aside)
            sync(self.path)
            done = f"set aside as {aside.name}"
        _warn(f"broken checkpoint {done}: {fault}")

    def at(self, step: int) -> Checkpoint:
        """Returns the checkpoint of a step, verified.

        Raises:
          CheckpointError: there is none, or it is broken.
        """
        checkpoint = Checkpoint(step, self.path / f"ckpt-{step}")
        if not checkpoint.path.is_dir():
            steps = [one.step for one in self.list()]
            has = f"It has: {steps}" if steps else "It has none."
            raise CheckpointError(f"'{self.path}' has no checkpoint of step {step}. {has}")
        checkpoint.verify()
        self._check_vocabularies(checkpoint)
        return checkpoint

    def _check_vocabularies(self, checkpoint: Checkpoint) -> None:
        checkpoint.check_vocabularies(self.path)

    def rate(self, step: int, value: float, *, lower_is_better: bool, metric: str = "") -> None:
        """Remembers in `best.json` how good a checkpoint is, also one that is being written.

        Args:
          step: of the checkpoint.
          value: of the watched metric; one that is not finite is never the best.
          lower_is_better: whether less of it is better.
          metric: its name in full; values of another are forgotten.
        """
        there = {checkpoint.step for checkpoint in self.list()}
        self._ratings.add(step, value, lower_is_better=lower_is_better, others=there, metric=metric)

    def best(self) -> Checkpoint | None:
        """Returns the best whole checkpoint, None if none was evaluated.

        Raises:
          CheckpointError: as `best_ones`.
        """
        best = self.best_ones(1)
        return best[0] if best else None

    def best_ones(self, count: int) -> Sequence[Checkpoint]:
        """Returns the best whole checkpoints, the best first; of equals the earliest.

        A broken one is told of, and the next best is taken; so it is, in silence, if one was
        deleted meanwhile.

        Raises:
          CheckpointError: `best.json` is damaged, or all that were evaluated are broken.
        """
        found: MutableSequence[Checkpoint] = []
        faults = []
        for step in self._ratings.ranked():
            checkpoint = Checkpoint(step, self.path / f"ckpt-{step}")
            if len(found) == count or not checkpoint.path.is_dir():
                continue
            try:
                checkpoint.verify()
            except CheckpointError as fault:
                if checkpoint.path.is_dir():
                    faults.append(str(fault))
                    self._report(checkpoint, fault, repair=False)
                continue
            if not self.is_gone_while(self._check_vocabularies, checkpoint):
                found.append(checkpoint)
        if faults and not found:
            raise CheckpointError(
                f"every checkpoint of '{self.path}' that was evaluated is broken:\n  "
                + "\n  ".join(faults)
            )
        return found

    def join(self, peers: Peers) -> None:
        """Names the processes that save shares together with this one, from now on."""
        self._peers = peers

    @property
    def is_joined(self) -> bool:
        """Whether `join` was called."""
        return self._peers is not None

    def save(self, snapshot: Snapshot) -> Checkpoint:
        """Writes a checkpoint, then deletes those that need not be kept.

        Tries again a few times if the disk is full or fails, and says so; those that need not be
        kept make room on a full one.  Of a snapshot that is a share all processes that `join` named
        must save theirs, in a file system that all of them see: what fails in one fails in all.

        Returns:
          the checkpoint; the one that is there already if that step was saved and is whole.

        Raises:
          SaveError: it could not be written; nothing half is left.
        """
        step = snapshot.state.step
        final = Checkpoint(step, self.path / f"ckpt-{step}")
        tries = 0
        while True:
            try:
                self._write(final, snapshot)
                break
            except (OSError, CheckpointError) as error:
                tries += 1
                self._wait_after(error, tries, final, snapshot)
        if snapshot.share is not None and snapshot.share.rank:
            return final
        try:
            latest = {"checkpoint": final.path.name, "step": final.step}
            replace_file(self.path / "latest.json", json.dumps(latest) + "\n")
            self._deletion.after(final, self.list())
        except (OSError, CheckpointError) as error:  # the checkpoint itself is whole
            _warn(f"after saving {final.path}: {error}")
        return final

    def prune(self, step: int) -> None:
        """Deletes those that need not be kept, as the last save may have been rated after it.

        Args:
          step: of the last save; nothing is deleted if its checkpoint is not there.
        """
        there = self.list()
        if not there or there[-1].step != step:
            return
        try:
            self._deletion.after(there[-1], there)
        except (OSError, CheckpointError) as error:
            _warn(f"superfluous checkpoints of '{self.path}' may be left: {error}")

    def give_up(self) -> None:
        """Has a save that waits for a disk try once more and no longer, from now on."""
        self._patience.give_up()

    def replace(self, is_waiting: bool) -> None:
        """Says whether a later state waits: a save that failed is not tried again then."""
        self._patience.is_replaced = is_waiting

    def _wait_after(
        self, error: Exception, tries: int, final: Checkpoint, snapshot: Snapshot
    ) -> None:
        """Waits till a save is to be tried again.

        Raises:
          SaveError: it is not.
        """
        others = [one for one in self.list() if one != final]
        pauses = self._of_all(lambda: self._patience.after(tries), snapshot)
        seconds = None if None in pauses else min(pauses)
        if seconds is not None:
            if snapshot.share is None or not snapshot.share.rank:
                again = f"{error}; trying again in {seconds:g} s"
                _warn(f"the checkpoint {final.path.name} is not written yet: {again}")
                self._deletion.before(final, others, error)
            self.wait(seconds)
        if any(self._of_all(lambda: self._patience.is_replaced, snapshot)):
            mend = "It is not tried again, as that of a later step is to be written"
        elif seconds is None:
            mend = "Make room on the disk, or mend it"
        else:
            return
        steps = ", ".join(f"{one.step}" for one in self.list() if one != final)
        there = f"there are those of the steps {steps}" if steps else "there is no other yet"
        raise SaveError(
            f"cannot write the checkpoint {final.path}: {error}. {mend}; {there}."
        ) from error

    def _of_all(self, ask: Callable[[], Any], snapshot: Snapshot) -> Sequence[Any]:
        """Returns the answer of this process, or of all that save together."""
        return [ask()] if snapshot.share is None else together(self._all_peers(), ask)

    def _write(self, final: Checkpoint, snapshot: Snapshot) -> None:
        if snapshot.share is not None:
            write_share(snapshot, final, lambda: self._begun(final), self._all_peers())
            return
        staged = self._begun(final)
        if staged is None:
            return
        try:
            said = Explanations.of(self.path)
            Checkpoint.write(staged, snapshot, copies=said.copies, vocabularies=said.vocabularies)
            rename(staged, final.path)
        except Exception:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def _all_peers(self) -> Peers:
        if self._peers is None:
            raise ValueError("a share is saved without the others: call `join` first")
        return self._peers

    def _begun(self, final: Checkpoint) -> Path | None:
        """Returns a free temporary name; None if the checkpoint is there and whole.

        A broken one is set aside; what is left of an earlier save is deleted.
        """
        if final.path.is_dir():
            try:
                final.verify()
                return None
            except CheckpointError as fault:
                self._report(final, fault, repair=True)
        staged = self.path / f"{final.path.name}.tmp-{os.getpid()}"
        shutil.rmtree(staged, ignore_errors=True)
        return staged


class _VanishedError(Exception):
    """A checkpoint was deleted while it was verified."""


def _warn(told: str) -> None:
    print(f"warning: {told}", file=sys.stderr, flush=True)
