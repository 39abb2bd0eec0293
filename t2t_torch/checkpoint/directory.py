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

import dataclasses
import errno
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, MutableSequence, Sequence
from pathlib import Path
from typing import Any

import pydantic
import safetensors

from t2t_torch.checkpoint.checkpoint import Checkpoint, Snapshot, kinds_of
from t2t_torch.checkpoint.storage import (
    Explanations,
    ProcessGroup,
    RetryPolicy,
    checkpoint_folders,
    folders_set_aside,
    free_name,
    make_folder,
    remove_folder,
    rename,
    replace_file,
    together,
)
from t2t_torch.errors import CheckpointError
from t2t_torch.files import sync

# Which checkpoints are kept.


_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept when another one has been written.

    The one just written and the best one always are.

    Attributes:
      last: newest ones; 0 keeps all.
      best: best ones.
      every: steps; those of its multiples are kept; 0: none for that reason.
      every_n_hours: of training; the first of each such period is kept, not of the period in which
        training began; 0: none for that reason.
    """

    last: int = 0
    best: int = 0
    every: int = 0
    every_n_hours: float = 0.0

    def superfluous(
        self, checkpoints: Sequence[Checkpoint], written: Checkpoint, ranked: Sequence[int]
    ) -> list[Checkpoint]:
        """Returns those to delete.

        Args:
          checkpoints: all, oldest first.
          written: the newest that is known to be whole.
          ranked: steps, the best first.
        """
        if not self.last:
            return []
        there = {checkpoint.step for checkpoint in checkpoints}
        best = [step for step in ranked if step in there][: max(self.best, 1)]
        kept = {written.step, *best, *self._of_hours(checkpoints)}
        return [
            checkpoint
            for checkpoint in checkpoints[: -self.last]
            if checkpoint.step not in kept
            and not (self.every and checkpoint.step % self.every == 0)
        ]

    def _of_hours(self, checkpoints: Sequence[Checkpoint]) -> set[int]:
        """Returns the steps of the first checkpoint of each period after the first."""
        if not self.every_n_hours:
            return set()
        first: dict[int, int] = {}
        for checkpoint in checkpoints:
            try:
                seconds = checkpoint.trainer_state().seconds
            except (CheckpointError, OSError):  # a broken one is kept for no reason of its own
                continue
            period = int(seconds // (self.every_n_hours * _SECONDS))
            if period:
                first.setdefault(period, checkpoint.step)
        return set(first.values())


# How good each checkpoint was found to be (`best.json`).


FILE = "best.json"


class _Record(pydantic.BaseModel, extra="forbid"):
    """The content of the file: values of one metric by step, and their checksum.

    Files of earlier versions have no checksum, and are taken as they are.
    """

    metric: str = ""
    lower_is_better: bool
    values: dict[int, float]
    sha256: str | None = None

    @property
    def digest(self) -> str:
        """The sha256 of all other fields."""
        return hashlib.sha256(self.model_dump_json(exclude={"sha256"}).encode()).hexdigest()

    def is_of(self, metric: str, *, lower_is_better: bool) -> bool:
        """Whether values of a metric compare with these; an older file does not name its own."""
        return self.metric in ("", metric) and self.lower_is_better == lower_is_better


class Ratings:
    """The watched metric of a run's checkpoints, kept in a file that every process can read.

    Args:
      folder: the run directory.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def add(
        self,
        step: int,
        value: float,
        *,
        lower_is_better: bool,
        others: Collection[int],
        metric: str = "",
    ) -> None:
        """Remembers a value; one that is not finite is none.

        A file that cannot be written is warned of.  Values of another metric, or of another
        direction, do not compare: they are forgotten.

        Args:
          step: of the checkpoint.
          value: of the metric.
          lower_is_better: whether less of it is better.
          others: steps of checkpoints whose values are worth keeping.
          metric: its name in full.
        """
        try:
            before = self._read()
        except CheckpointError as error:
            print(f"warning: {error}; begun anew", file=sys.stderr, flush=True)
            before = None
        values = {}
        if before is not None and before.is_of(metric, lower_is_better=lower_is_better):
            values = {one: known for one, known in before.values.items() if one in others}
        values.pop(step, None)
        if math.isfinite(value):
            values[step] = value
        record = _Record(
            metric=metric, lower_is_better=lower_is_better, values=dict(sorted(values.items()))
        )
        record.sha256 = record.digest
        try:
            replace_file(self._file, record.model_dump_json(indent=2) + "\n")
        except OSError as error:
            print(f"warning: {self._file} cannot be written: {error}", file=sys.stderr, flush=True)

    def ranked(self) -> list[int]:
        """Returns the steps that have a value, the best first; of equal ones the earliest.

        Raises:
          CheckpointError: the file is damaged.
        """
        record = self._read()
        if record is None:
            return []
        sign = 1 if record.lower_is_better else -1
        return sorted(record.values, key=lambda step: (sign * record.values[step], step))

    def _read(self) -> _Record | None:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = _Record.model_validate_json(text)
        except pydantic.ValidationError as error:
            faults = "; ".join(str(fault["msg"]) for fault in error.errors()[:3])
            raise CheckpointError(
                f"{self._file}, which says which checkpoint is best, is damaged: {faults}"
            ) from None
        if record.sha256 not in (None, record.digest):
            raise CheckpointError(
                f"{self._file}, which says which checkpoint is best, was altered: its sha256 does "
                "not fit. Delete it and evaluate again, or name a checkpoint by its step."
            )
        finite = {step: value for step, value in record.values.items() if math.isfinite(value)}
        return record.model_copy(update={"values": finite})


# Deleting the checkpoints that need not be kept.


_FULL = (errno.ENOSPC, errno.EDQUOT)


class Deletion:
    """Deletes checkpoints once there are later ones, or to make room for them.

    Args:
      retention: which are kept.
      ratings: of those that were evaluated.
    """

    def __init__(self, retention: Retention, ratings: Ratings) -> None:
        self._retention = retention
        self._ratings = ratings

    def after(self, written: Checkpoint, checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Deletes what is superfluous; returns it.

        Args:
          written: the newest that is known to be whole.
          checkpoints: all, oldest first.

        Raises:
          OSError: the disk fails.
          CheckpointError: `best.json` is damaged.
        """
        ranked = self._ratings.ranked()
        superfluous = self._retention.superfluous(checkpoints, written, ranked)
        for checkpoint in superfluous:
            # Renamed first: a crash in the middle of deleting leaves nothing that looks like one.
            removed = free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.removed"))
            rename(checkpoint.path, removed)
            remove_folder(removed)
        return superfluous

    def before(self, coming: Checkpoint, there: Sequence[Checkpoint], error: Exception) -> None:
        """Deletes what would go once another is written, if that failed as the disk is full.

        The newest stays, and if it is not whole all do.

        Args:
          coming: that is being written.
          there: all others, oldest first.
          error: why it failed.
        """
        if not (isinstance(error, OSError) and error.errno in _FULL) or len(there) < 2:
            return
        try:
            there[-1].verify()
            deleted = self.after(there[-1], sorted([*there, coming]))
            if deleted:
                names = ", ".join(one.path.name for one in deleted)
                _warn(f"deleted before {coming.path.name} is written, to make room: {names}")
        except (OSError, CheckpointError) as fault:
            _warn(f"nothing is deleted to make room: {fault}")


# A checkpoint to which each of several processes adds its own parts.


def write_share(
    snapshot: Snapshot, final: Checkpoint, begin: Callable[[], Path | None], peers: ProcessGroup
) -> None:
    """Writes this process's parts; returns when the checkpoint of all is there.

    The leader makes the folder, and when all have written and read back their files it adds the
    manifest, with the sums that they tell it, and renames the folder.

    Args:
      snapshot: a share.
      final: the checkpoint that is to be.
      begin: called in the leader; returns the temporary folder, which it makes, or None if the
        checkpoint is there already.
      peers: all of which must call this, with shares of the same step.

    Raises:
      OSError, CheckpointError: it could not be written, be it in another process; nothing half is
        left.
      RuntimeError, PeerDefectError: another process died, or has a defect.
    """
    leads = peers.rank == 0
    made: list[Path] = []

    def make_folders() -> str:
        staged = begin() if leads else None
        if staged is None:
            return ""
        made.append(staged)
        for folder in (staged, *(staged / kind for kind in kinds_of(snapshot))):
            make_folder(folder)
        return staged.name

    def finish() -> None:
        if leads:
            tensors = {name: entry for one in files for name, entry in one.items()}
            said = Explanations.of(final.path.parent)
            Checkpoint.write_rest(
                staged, snapshot, tensors, copies=said.copies, vocabularies=said.vocabularies
            )
            rename(staged, final.path)

    try:
        name = together(peers, make_folders)[0]
        if name:
            staged = final.path.with_name(name)
            files = together(peers, lambda: Checkpoint.write_tensors(staged, snapshot))
            together(peers, finish)
    except Exception:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        raise


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
        self._patience = RetryPolicy(is_hurried)
        self.wait = self._patience.wait if wait is None else wait
        self._ratings = Ratings(self.path)
        retention = Retention(keep, keep_best, keep_every, keep_every_n_hours)
        self._deletion = Deletion(retention, self._ratings)
        self._told: set[Path] = set()  # broken ones that stay where they are
        self._peers: ProcessGroup | None = None

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

    def join(self, peers: ProcessGroup) -> None:
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

    def _all_peers(self) -> ProcessGroup:
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
