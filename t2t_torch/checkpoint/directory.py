"""Checkpoints: a folder per step, written so that a crash at any instant leaves a valid state.

    ckpt-<step>/
      model.safetensors      weights and buffers; a shared (tied) tensor stands once
      optimizer.safetensors  '<parameter>/<slot>'
      trainer.json           `TrainerState`
      hparams.json, task.json   copies, so that a checkpoint explains itself
      MANIFEST.json          sizes and sha256 of the others, written last

Saved under a temporary name, every file and folder fsynced, then renamed.  Loading goes from the
newest to the oldest; a broken one is set aside as `ckpt-<step>.corrupt`.  If there are checkpoints
and none is whole, loading refuses: a run never starts from scratch over what is left of it.
Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, MutableSequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from t2t_torch.checkpoint.checkpoint import MANIFEST, MODEL, OPTIMIZER, TRAINER, Checkpoint
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.checkpoint.weights import model_tensors, save_optimizer
from t2t_torch.data.manifest import sha256_of
from t2t_torch.data.staging import staged, sync
from t2t_torch.errors import CheckpointError

_NAME = re.compile(r"ckpt-(\d+)")
_COPIES = ("task.json", "hparams.json")
_RETRY_SECONDS = (1.0, 5.0, 25.0)
_SCANS = 20  # of a directory whose checkpoints another process deletes meanwhile


class SaveError(CheckpointError):
    """A checkpoint could not be written; those before it are as they were."""


class CheckpointDirectory:
    """The checkpoints of one run directory.

    Args:
      path: the run directory.
      keep: newest checkpoints to keep; 0 keeps all.
      wait: called with seconds before a failed save is tried again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: int = 0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path = Path(path)
        self.wait = wait
        self._keep = keep
        self._told: set[Path] = set()  # broken ones that stay where they are

    def list(self) -> list[Checkpoint]:
        """Returns the checkpoints, whole or not, oldest first."""
        found = []
        for path in self.path.glob("ckpt-*"):
            match = _NAME.fullmatch(path.name)
            if match and path.is_dir():
                found.append(Checkpoint(int(match[1]), path))
        return sorted(found)

    def newest(self, *, repair: bool = False) -> Checkpoint | None:
        """Returns the newest whole checkpoint, None if there never was one.

        Args:
          repair: rename broken ones to `ckpt-<step>.corrupt`; for the process that holds the lock.

        Raises:
          CheckpointError: there are checkpoints, and all are broken.
        """
        for _ in range(_SCANS):
            # What was set aside before this scan; `_scan` lists those of its own.
            faults = [f"{path} was set aside before" for path in self.path.glob("ckpt-*.corrupt*")]
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
            return newest
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
            aside = _free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.corrupt"))
            checkpoint.path.rename(aside)
            sync(self.path)
            done = f"set aside as {aside.name}"
        print(f"warning: broken checkpoint {done}: {fault}", file=sys.stderr, flush=True)

    def at(self, step: int) -> Checkpoint:
        """Returns the checkpoint of a step, verified.

        Raises:
          CheckpointError: there is none, or it is broken.
        """
        checkpoint = Checkpoint(step, self.path / f"ckpt-{step}")
        if not checkpoint.path.is_dir():
            steps = [one.step for one in self.list()]
            raise CheckpointError(
                f"'{self.path}' has no checkpoint of step {step}. It has: {steps}"
            )
        checkpoint.verify()
        return checkpoint

    def save(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainerState
    ) -> Checkpoint:
        """Writes a checkpoint, then deletes those beyond `keep`.

        Tries again a few times if the disk is full or fails.

        Returns:
          the checkpoint; the one that is there already if that step was saved and is whole.

        Raises:
          SaveError: it could not be written; nothing half is left.
        """
        final = Checkpoint(state.step, self.path / f"ckpt-{state.step}")
        for seconds in (*_RETRY_SECONDS, None):
            try:
                self._write(final, model, optimizer, state)
                break
            except (OSError, safetensors.SafetensorError) as error:
                if seconds is None:
                    raise SaveError(
                        f"cannot write the checkpoint {final.path}: {error}. Make room on the "
                        "disk, or mend it; the checkpoints before are whole."
                    ) from error
                self.wait(seconds)
        try:
            with staged(self.path / "latest.json") as file:
                latest = {"checkpoint": final.path.name, "step": final.step}
                file.write_text(json.dumps(latest) + "\n", encoding="utf-8")
            self._remove_old(final)
        except OSError as error:  # the checkpoint itself is whole
            print(f"warning: after saving {final.path}: {error}", file=sys.stderr, flush=True)
        return final

    def _write(
        self,
        final: Checkpoint,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
    ) -> None:
        if final.path.is_dir():
            try:
                final.verify()
                return
            except CheckpointError as fault:
                self._report(final, fault, repair=True)
        staged = self.path / f"{final.path.name}.tmp-{os.getpid()}"
        try:
            self._stage(staged, model, optimizer, state)
            staged.rename(final.path)
        except Exception:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        sync(self.path)

    def _stage(
        self,
        staged: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
    ) -> None:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        safetensors.torch.save_file(model_tensors(model), staged / MODEL)
        save_optimizer(optimizer, model, staged / OPTIMIZER)
        (staged / TRAINER).write_text(state.model_dump_json(indent=2) + "\n", encoding="utf-8")
        for name in _COPIES:
            if (self.path / name).exists():
                shutil.copyfile(self.path / name, staged / name)
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
            for file in sorted(staged.iterdir())
        }
        manifest = json.dumps({"step": state.step, "files": files}, indent=2) + "\n"
        (staged / MANIFEST).write_text(manifest, encoding="utf-8")
        for file in staged.iterdir():
            sync(file)
        sync(staged)

    def _remove_old(self, newest: Checkpoint) -> None:
        if not self._keep:
            return
        for checkpoint in self.list()[: -self._keep]:
            if checkpoint == newest:
                continue  # resumed behind a newer one that is gone bad: still the newest valid
            # Renamed first: a crash in the middle of deleting leaves nothing that looks like one.
            removed = _free_name(checkpoint.path.with_name(f"{checkpoint.path.name}.removed"))
            checkpoint.path.rename(removed)
            shutil.rmtree(removed)


class _VanishedError(Exception):
    """A checkpoint was deleted while it was verified."""


def _free_name(path: Path) -> Path:
    """Returns the path, or the first of path-1, path-2 ... that does not exist."""
    candidate, number = path, 0
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
