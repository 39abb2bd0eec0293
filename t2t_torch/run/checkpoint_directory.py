"""Checkpoint directory: one folder per step, valid after a crash at any time.

    ckpt-<step>/
      model.safetensors      weights and buffers; shared (tied) tensors once
      optimizer.safetensors  '<parameter>/<slot>'
      average.safetensors    the running mean of the weights, if the run keeps one
      trainer.json           `TrainerState`
      hparams.json, task.json, config.json   copies that make a checkpoint self-contained
      MANIFEST.json          sizes and sha256 of the others and of the run's vocabularies; last
      model/, optimizer/, average/   for sharded weights, instead of the files of these names:
        00001-of-00002.safetensors   the shards of the first of two processes, written by it
    best.json                the monitored metric of each evaluated checkpoint
    latest.json              hint to the newest; the folders are authoritative

A save writes to a temporary name, flushes every file and folder to disk, reads them back, and
renames the folder.  Loading tries checkpoints from the newest to the oldest and renames a corrupt
one to `ckpt-<step>.corrupt`.  If checkpoints exist but all are corrupt, loading raises an error, so
a run never restarts from scratch over its remains.  Nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from pathlib import Path

import pydantic
import safetensors

from t2t_torch import remote
from t2t_torch.atomic_files import sync
from t2t_torch.distributed.process_group import ONE_PROCESS, World
from t2t_torch.errors import CheckpointError
from t2t_torch.files import read_bytes
from t2t_torch.reporter import message
from t2t_torch.run.checkpoint import MANIFEST, Checkpoint, Snapshot, kinds_of
from t2t_torch.run.checksums import Explanations
from t2t_torch.run.storage import (
    RetryPolicy,
    checkpoint_folders,
    folders_set_aside,
    follow,
    free_name,
    make_folder,
    remove_folder,
    rename,
    replace_file,
    together,
)

_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Retention:
    """Selects the checkpoints to keep after each save.

    The newest and the best checkpoint are always kept.

    Attributes:
      last: number of newest checkpoints; 0 keeps all.
      best: number of best checkpoints.
      every: keep checkpoints at multiples of this many steps; 0 disables it.
      every_n_hours: keep the first checkpoint of each such period of training time, except the
        first period; 0 disables it.
    """

    last: int = 0
    best: int = 0
    every: int = 0
    every_n_hours: float = 0.0

    def superfluous(
        self, checkpoints: Sequence[Checkpoint], written: Checkpoint, ranked: Sequence[int]
    ) -> list[Checkpoint]:
        """Returns the checkpoints to delete.

        Args:
          checkpoints: all, oldest first.
          written: the newest checkpoint known to be valid.
          ranked: steps, best first.
        """
        if not self.last:
            return []
        there = {checkpoint.step for checkpoint in checkpoints}
        best = [step for step in ranked if step in there][: max(self.best, 1)]
        retained = {written.step, *best, *self._of_hours(checkpoints)}
        return [
            checkpoint
            for checkpoint in checkpoints[: -self.last]
            if checkpoint.step not in retained
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
            except (CheckpointError, OSError):  # corrupt checkpoints are not kept for this reason
                continue
            if period := int(seconds // (self.every_n_hours * _SECONDS)):
                first.setdefault(period, checkpoint.step)
        return set(first.values())


FILE = "best.json"


class _Record(pydantic.BaseModel, extra="forbid"):
    """Content of the file: values of one metric by step, with a checksum.

    Files of earlier versions have no checksum or no losses and are accepted.
    """

    metric: str = ""
    lower_is_better: bool
    values: dict[int, float]
    losses: dict[int, float] = {}
    sha256: str | None = None

    @property
    def digest(self) -> str:
        """The sha256 of all other fields."""
        absent = {"sha256"} if self.losses else {"sha256", "losses"}
        return hashlib.sha256(self.model_dump_json(exclude=absent).encode()).hexdigest()

    def is_of(self, metric: str, *, lower_is_better: bool) -> bool:
        """Returns whether these are values of this metric; older files do not name theirs."""
        return self.metric in ("", metric) and self.lower_is_better == lower_is_better


class Ratings:
    """Values of the monitored metric of a run's checkpoints, in a file that any process can read.

    Args:
      folder: the run directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / FILE

    def add(
        self,
        step: int,
        value: float,
        *,
        lower_is_better: bool,
        metric: str = "",
        loss: float = math.nan,
    ) -> None:
        """Stores a value; one that is not finite is ignored.

        Warns if the file cannot be written.  Stored values of another metric or direction are not
        comparable and are dropped; so are those of later steps without a checkpoint, from before a
        resumed run lost it.

        Args:
          step: step of the checkpoint.
          value: value of the metric.
          lower_is_better: lower values are better.
          metric: full name of the metric.
          loss: loss of the checkpoint, which decides between equal values.
        """
        try:
            before = self._read()
        except CheckpointError as error:
            _warn(f"{error}; starting again")
            before = None
        others = checkpoint_folders(self._folder)
        columns: list[dict[int, float]] = [{}, {}]
        if before is not None and before.is_of(metric, lower_is_better=lower_is_better):
            columns = [dict(before.values), dict(before.losses)]
        for column, new in zip(columns, (value, loss), strict=True):
            # Those of deleted checkpoints remain, however early a restart finds them deleted.
            for one in [one for one in column if one == step or (one > step and one not in others)]:
                del column[one]
            if math.isfinite(value) and math.isfinite(new):
                column[step] = new
        values, losses = (dict(sorted(column.items())) for column in columns)
        record = _Record(
            metric=metric, lower_is_better=lower_is_better, values=values, losses=losses
        )
        record.sha256 = record.digest
        try:
            replace_file(self._file, record.model_dump_json(indent=2) + "\n")
        except OSError as error:
            _warn(f"{self._file} cannot be written: {error}")

    def ranked(self) -> list[int]:
        """Returns the steps with values, best first; equal ones by loss, then the latest first.

        The latest, because it has trained longest where the loss is not known.

        Raises:
          CheckpointError: the file is damaged.
        """
        record = self._read()
        if record is None:
            return []
        sign, losses = 1 if record.lower_is_better else -1, record.losses
        return sorted(
            record.values,
            key=lambda step: (sign * record.values[step], losses.get(step, math.inf), -step),
        )

    def _read(self) -> _Record | None:
        try:
            text = read_bytes(self._file)
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


_FULL = (errno.ENOSPC, errno.EDQUOT)


def write(
    snapshot: Snapshot, final: Checkpoint, begin: Callable[[], Path | None], peers: World
) -> None:
    """Writes what this process has of a state; returns once the whole checkpoint is complete.

    The main process creates the folder.  When all processes have written and verified their files,
    it adds the manifest with their checksums and renames the folder.

    Args:
      snapshot: the snapshot.
      final: the resulting checkpoint.
      begin: called in the main process; creates and returns the temporary folder, or returns None
        if the checkpoint already exists.
      peers: the group of processes, all of which must call this for the same step.

    Raises:
      OSError, CheckpointError: it could not be written, here or in another process; no partial
        checkpoint is left.
      RuntimeError, PeerDefectError: another process died, or has a bug.
    """
    made: list[Path] = []

    def make_folders() -> str:
        staged = begin() if peers.leads else None
        if staged is None:
            return ""
        made.append(staged)
        kinds = kinds_of(snapshot) if snapshot.share is not None else ()
        for folder in (staged, *(staged / kind for kind in kinds)):
            make_folder(folder)
        return staged.name

    def finish() -> None:
        if peers.leads:
            tensors = {name: entry for one in files for name, entry in one.items()}
            Checkpoint.write_rest(staged, snapshot, tensors, Explanations.of(final.path.parent))
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


_SCANS = 20  # of a directory in which another process deletes checkpoints


class SaveError(CheckpointError):
    """A checkpoint could not be written; earlier ones are unchanged."""


class CheckpointDirectory:
    """The checkpoints of a run directory.

    Args:
      path: the run directory.
      keep: number of newest checkpoints to keep; 0 keeps all.
      keep_best: number of best checkpoints to keep in addition; the best one is always kept.
      keep_every: also keep checkpoints at multiples of this many steps; 0: none.
      keep_every_n_hours: also keep one per such period of training time; 0: none.
      is_hurried: whether a signal to terminate has come, which shortens retries of a save.
      wait: called with the seconds before a failed save is retried.

    Attributes:
      rate: stores the metric value of a checkpoint, even while it is written; see `Ratings.add`.
      ranked: returns the steps with values, best first; see `Ratings.ranked`.
      peers: the processes of sharded saves; None until there are any.
      retries: pauses of a save that the disk refuses; another thread may end them.
      read_steps: steps of checkpoints that another process reads, which are kept.
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
        self.retries = RetryPolicy(is_hurried)
        self.wait = self.retries.wait if wait is None else wait
        self._ratings = Ratings(self.path)
        self.rate = self._ratings.add
        self.ranked = self._ratings.ranked
        self._retention = Retention(keep, keep_best, keep_every, keep_every_n_hours)
        self._reported: set[Path] = set()  # corrupt ones that were not renamed
        self.peers: World | None = None
        self.read_steps: set[int] = set()

    def list(self) -> list[Checkpoint]:
        """Returns the checkpoints, valid or not, oldest first."""
        remote.resolve(self.path)
        return [Checkpoint(step, path) for step, path in checkpoint_folders(self.path).items()]

    def newest(self, *, repair: bool = False) -> Checkpoint | None:
        """Returns the newest valid checkpoint, None if there never was one.

        Args:
          repair: rename corrupt ones to `ckpt-<step>.corrupt`; for the process that holds the lock.

        Raises:
          CheckpointError: checkpoints exist, but all are corrupt.
        """
        return self.read_newest(self._check_vocabularies, repair=repair)

    def _scan(self, faults: MutableSequence[str], *, repair: bool) -> Checkpoint | None:
        """Returns the newest valid checkpoint of one listing; adds the errors of the others.

        Raises:
          CheckpointError: checkpoints exist, but all are corrupt.
          _VanishedError: a checkpoint was deleted meanwhile: newer ones may exist by now.
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
        if faults:
            raise CheckpointError(
                f"every checkpoint of '{self.path}' is broken:\n  "
                + "\n  ".join(faults)
                + "\nNothing was overwritten. Restore one from a backup, or train in another "
                "--output_dir."
            )
        return None

    def read_newest(
        self, read: Callable[[Checkpoint], object], *, repair: bool = False
    ) -> Checkpoint | None:
        """Calls `read` with the newest valid checkpoint; retries if it is deleted meanwhile.

        For readers concurrent with a trainer, which may delete old checkpoints at any time.

        Args:
          read: called with the checkpoint.
          repair: see `newest`.

        Returns:
          the checkpoint that was read; None if there never was one.

        Raises:
          CheckpointError: as `newest`, or raised by `read` for a checkpoint that still exists.
        """
        for _ in range(_SCANS):
            # Folders renamed before this scan; `_scan` lists its own.
            faults = [f"{path} was set aside before" for path in folders_set_aside(self.path)]
            try:
                newest = self._scan(faults, repair=repair)
            except _VanishedError:
                continue
            if newest is None or not (
                self.deleted_during(self._check_vocabularies, newest)
                or self.deleted_during(read, newest)
            ):
                return newest
        raise CheckpointError(
            f"the checkpoints of '{self.path}' are deleted faster than they can be read. Keep more "
            "of them: --keep_checkpoint_max of t2t-trainer."
        )

    def read_best(self, read: Callable[[Checkpoint], object]) -> Checkpoint | None:
        """Calls `read` with the best checkpoint, or the newest if none is known as best.

        Returns:
          the checkpoint that was read; None if there never was one.

        Raises:
          CheckpointError: as `read_newest`.
        """
        if (best := self.best()) is not None and not self.deleted_during(read, best):
            return best
        return self.read_newest(read)

    def deleted_during(self, read: Callable[[Checkpoint], object], checkpoint: Checkpoint) -> bool:
        """Calls `read`; returns whether it failed because the checkpoint was deleted."""
        try:
            read(checkpoint)
        except (CheckpointError, OSError, safetensors.SafetensorError):
            if checkpoint.path.is_dir():
                raise
            return True
        return False

    def _report(self, checkpoint: Checkpoint, fault: CheckpointError, *, repair: bool) -> None:
        if checkpoint.path in self._reported and not repair:
            return
        done = "ignored"
        if not repair:
            self._reported.add(checkpoint.path)
        else:
            aside = free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.corrupt"))
            remote.remove(checkpoint.path)
            checkpoint.path.rename(aside)
            sync(self.path)
            done = f"set aside as {aside.name}"
        _warn(f"broken checkpoint {done}: {fault}")

    def at(self, step: int) -> Checkpoint:
        """Returns the checkpoint of a step, verified.

        Raises:
          CheckpointError: it is missing or corrupt.
        """
        checkpoint = Checkpoint(step, self.path / f"ckpt-{step}")
        if not remote.fetch(checkpoint.path):
            steps = [one.step for one in self.list()]
            has = f"It has: {steps}" if steps else "It has none."
            raise CheckpointError(f"'{self.path}' has no checkpoint of step {step}. {has}")
        checkpoint.verify()
        self._check_vocabularies(checkpoint)
        return checkpoint

    def _check_vocabularies(self, checkpoint: Checkpoint) -> None:
        checkpoint.check_vocabularies(self.path)

    def best(self) -> Checkpoint | None:
        """Returns the best valid checkpoint, None if none was evaluated.

        Raises:
          CheckpointError: as `best_ones`.
        """
        best = self.best_ones(1)
        return best[0] if best else None

    def best_ones(self, count: int) -> Sequence[Checkpoint]:
        """Returns the best valid checkpoints, best first; equal ones as in `Ratings.ranked`.

        Skips corrupt checkpoints with a warning, and silently those deleted meanwhile.

        Raises:
          CheckpointError: `best.json` is damaged, or all evaluated checkpoints are corrupt.
        """
        chosen: MutableSequence[Checkpoint] = []
        faults = []
        for step in self._ratings.ranked():
            checkpoint = Checkpoint(step, self.path / f"ckpt-{step}")
            if len(chosen) == count or not checkpoint.path.is_dir():
                continue
            try:
                checkpoint.verify()
            except CheckpointError as fault:
                if checkpoint.path.is_dir():
                    faults.append(str(fault))
                    self._report(checkpoint, fault, repair=False)
                continue
            if not self.deleted_during(self._check_vocabularies, checkpoint):
                chosen.append(checkpoint)
        if faults and not chosen:
            raise CheckpointError(
                f"every checkpoint of '{self.path}' that was evaluated is broken:\n  "
                + "\n  ".join(faults)
            )
        return chosen

    def save(self, snapshot: Snapshot) -> Checkpoint:
        """Writes a checkpoint, then deletes superfluous ones.

        If the disk is full or fails, warns and retries a few times; on a full disk superfluous
        checkpoints are deleted first.  A sharded snapshot must be saved by all `peers`,
        in a file system shared by them; a failure in one is a failure in all.

        Returns:
          the checkpoint; an existing one if that step was already saved and is valid.

        Raises:
          SaveError: it could not be written; no partial checkpoint is left.
        """
        step = snapshot.state.step
        final = Checkpoint(step, self.path / f"ckpt-{step}")
        peers = ONE_PROCESS if snapshot.share is None else self.peers
        if peers is None:
            raise ValueError("a share is saved without the others: set `peers` first")
        tries = 0
        while True:
            try:
                write(snapshot, final, lambda: self._staged_folder(final), peers)
                together(peers, lambda: remote.push(self.path) if peers.leads else None)
                break
            except (OSError, CheckpointError) as error:
                tries += 1
                self._wait_after(error, tries, final, peers)
        if not peers.leads:
            return final
        try:
            latest = {"checkpoint": final.path.name, "step": final.step}
            replace_file(self.path / "latest.json", json.dumps(latest) + "\n")
            self._delete_superfluous(final, self.list())
        except (OSError, CheckpointError) as error:  # the checkpoint itself is valid
            _warn(f"after saving {final.path}: {error}")
        return final

    def prune(self, step: int) -> None:
        """Deletes superfluous checkpoints again, after the last save may have received its rating.

        Args:
          step: step of the last save; nothing is deleted if its checkpoint does not exist.
        """
        there = self.list()
        if not there or there[-1].step != step:
            return
        try:
            self._delete_superfluous(there[-1], there)
        except (OSError, CheckpointError) as error:
            _warn(f"superfluous checkpoints of '{self.path}' may be left: {error}")

    def _delete_superfluous(
        self, written: Checkpoint, checkpoints: Sequence[Checkpoint]
    ) -> Sequence[Checkpoint]:
        """Deletes superfluous checkpoints and returns them.

        Args:
          written: the newest checkpoint known to be valid.
          checkpoints: all, oldest first.

        Raises:
          OSError: the disk fails.
          CheckpointError: `best.json` is damaged.
        """
        superfluous = self._retention.superfluous(checkpoints, written, self._ratings.ranked())
        superfluous = [one for one in superfluous if one.step not in self.read_steps]
        for checkpoint in superfluous:
            # Renames first: a crash during deletion leaves no partial checkpoint.
            removed = free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.removed"))
            remote.remove(checkpoint.path)
            rename(checkpoint.path, removed)
            remove_folder(removed)
        return superfluous

    def _free_space(self, coming: Checkpoint, there: Sequence[Checkpoint]) -> None:
        """Deletes checkpoints before one is written, for which the disk is too full.

        The newest checkpoint is kept; if it is corrupt, all are.

        Args:
          coming: the checkpoint being written.
          there: all others, oldest first.
        """
        if len(there) < 2:
            return
        try:
            there[-1].verify()
            if deleted := self._delete_superfluous(there[-1], sorted([*there, coming])):
                names = ", ".join(one.path.name for one in deleted)
                _warn(f"deleted before {coming.path.name} is written, to free disk space: {names}")
        except (OSError, CheckpointError) as fault:
            _warn(f"nothing is deleted to free disk space: {fault}")

    def _wait_after(self, error: Exception, tries: int, final: Checkpoint, peers: World) -> None:
        """Waits until a save should be retried.

        Raises:
          SaveError: it should not be retried.
        """
        others = [one for one in self.list() if one != final]
        pauses = together(peers, lambda: self.retries.after(tries))
        seconds = None if None in pauses else min(pauses)
        if seconds is not None:
            if peers.leads:
                again = f"{error}; trying again in {seconds:g} s"
                _warn(f"the checkpoint {final.path.name} is not written yet: {again}")
                if isinstance(error, OSError) and error.errno in _FULL:
                    self._free_space(final, others)
            self.wait(seconds)
        if any(together(peers, lambda: self.retries.is_replaced)):
            remedy = "It is not tried again, as that of a later step is to be written"
        elif seconds is None:
            remedy = "Free disk space, or repair the disk"
        else:
            return
        steps = ", ".join(f"{one.step}" for one in self.list() if one != final)
        there = f"there are those of the steps {steps}" if steps else "there is no other yet"
        raise SaveError(
            f"cannot write the checkpoint {final.path}: {error}. {remedy}; {there}."
        ) from error

    def _staged_folder(self, final: Checkpoint) -> Path | None:
        """Returns an unused temporary path; None if a valid checkpoint exists.

        Renames a corrupt one, and deletes the remains of an earlier save.
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
    """A checkpoint was deleted during verification."""


def _warn(text: str) -> None:
    message(f"warning: {text}")


def follow_checkpoints(
    directory: CheckpointDirectory, min_steps: int, wait_minutes: float
) -> Iterator[Checkpoint]:
    """Yields complete checkpoints, also new ones, until none appears for some minutes.

    Corrupt checkpoints are skipped with a warning; deleted ones are skipped.

    Args:
      directory: checkpoints of a run, which may be training.
      min_steps: checkpoints with fewer steps are skipped.
      wait_minutes: time to wait for another one; 0: do not wait.
    """

    def list_now() -> list[Checkpoint]:
        return [one for one in directory.list() if one.step >= min_steps]

    for checkpoint in follow(list_now, wait_minutes):
        try:
            checkpoint.verify()
        except CheckpointError as fault:
            if checkpoint.path.is_dir():
                _warn(f"broken checkpoint left out: {fault}")
            continue
        yield checkpoint


def time_of(checkpoint: Checkpoint) -> int:
    """Returns the time at which a checkpoint was written, in nanoseconds."""
    return (checkpoint.path / MANIFEST).stat().st_mtime_ns
