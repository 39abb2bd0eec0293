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

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pydantic
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from t2t_torch.data.manifest import sha256_of
from t2t_torch.data.staging import staged, sync
from t2t_torch.errors import CheckpointError

_NAME = re.compile(r"ckpt-(\d+)")
_MANIFEST = "MANIFEST.json"
_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_TRAINER = "trainer.json"
_COPIES = ("task.json", "hparams.json")


class TrainerState(pydantic.BaseModel, extra="forbid"):
    """Where a run stands, beside weights and optimizer.

    Attributes:
      step: optimizer steps done.
      batches_consumed: global batches consumed: the position in the data.
      batches_per_step: micro-batches of all processes that make a step.
      tokens: non-padding target tokens (the loss's weight) seen.
      seed: of initialization, dropout and order.
      plan_fingerprint: of the order of the data.
      version: of t2t_torch.
    """

    step: int = 0
    batches_consumed: int = 0
    batches_per_step: int = 1
    tokens: int = 0
    seed: int = 0
    plan_fingerprint: str = ""
    version: str = ""


@dataclasses.dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
      step: optimizer steps done.
      path: its folder.
    """

    step: int
    path: Path

    def verify(self) -> None:
        """Compares every file with the manifest.

        Raises:
          CheckpointError: a file is missing, altered or truncated.
        """
        try:
            files = json.loads((self.path / _MANIFEST).read_bytes())["files"]
            missing = {_MODEL, _TRAINER} - set(files)
            if missing:
                raise CheckpointError(f"{self.path}: {_MANIFEST} does not list {sorted(missing)}")
            for name, expected in files.items():
                self._verify_file(name, expected["bytes"], expected["sha256"])
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}: {Path(error.filename).name} is missing") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path}: {_MANIFEST} is damaged: {error}") from error

    def _verify_file(self, name: str, size: int, sha256: str) -> None:
        file = self.path / name
        found = file.stat().st_size
        if found != size:
            raise CheckpointError(f"{file} has {found} bytes; expected {size}")
        if sha256_of(file) != sha256:
            raise CheckpointError(f"{file} was altered: its sha256 is not the manifest's")

    def trainer_state(self) -> TrainerState:
        """Reads `trainer.json`."""
        return TrainerState.model_validate_json((self.path / _TRAINER).read_bytes())

    def load_model(self, model: nn.Module) -> None:
        """Loads weights and buffers into a model, on whatever device it is.

        Raises:
          CheckpointError: names or shapes differ.
        """
        load_weights(model, self.path / _MODEL)

    def load_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Loads the optimizer's slots; its hyperparameters stay those of `hparams`.

        Raises:
          CheckpointError: the checkpoint is of another optimizer.
        """
        state: dict[str, dict[str, Tensor]] = {}
        for key, value in safetensors.torch.load_file(self.path / _OPTIMIZER).items():
            parameter, slot = key.rsplit("/", 1)
            state.setdefault(parameter, {})[slot] = value
        names = _optimizer_names(optimizer, model)
        unknown = sorted(set(state) - set(names))
        if unknown:
            raise CheckpointError(f"{self.path}: the model has no parameter {unknown[0]!r}")
        groups = optimizer.state_dict()["param_groups"]
        by_index = {index: state[name] for index, name in enumerate(names) if name in state}
        optimizer.load_state_dict({"state": by_index, "param_groups": groups})


class CheckpointDirectory:
    """The checkpoints of one run directory.

    Args:
      path: the run directory.
      keep: newest checkpoints to keep; 0 keeps all.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: int = 0) -> None:
        self.path = Path(path)
        self._keep = keep

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
        faults = []
        for checkpoint in reversed(self.list()):
            try:
                checkpoint.verify()
            except CheckpointError as fault:
                faults.append(str(fault))
                self._report(checkpoint, fault, repair=repair)
                continue
            return checkpoint
        faults += [f"{path} was set aside before" for path in self.path.glob("ckpt-*.corrupt*")]
        if faults:
            raise CheckpointError(
                f"every checkpoint of '{self.path}' is broken:\n  "
                + "\n  ".join(faults)
                + "\nNothing was overwritten. Restore one from a backup, or train in another "
                "--output_dir."
            )
        return None

    def _report(self, checkpoint: Checkpoint, fault: CheckpointError, *, repair: bool) -> None:
        done = "ignored"
        if repair:
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

        Returns:
          the checkpoint; the one that is there already if that step was saved and is whole.
        """
        final = Checkpoint(state.step, self.path / f"ckpt-{state.step}")
        if not final.path.exists():
            self._write(final, model, optimizer, state)
        with staged(self.path / "latest.json") as file:
            latest = {"checkpoint": final.path.name, "step": final.step}
            file.write_text(json.dumps(latest) + "\n", encoding="utf-8")
        self._remove_old(final)
        return final

    def _write(
        self,
        final: Checkpoint,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
    ) -> None:
        staged = self.path / f"{final.path.name}.tmp-{os.getpid()}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        safetensors.torch.save_file(model_tensors(model), staged / _MODEL)
        safetensors.torch.save_file(_optimizer_tensors(optimizer, model), staged / _OPTIMIZER)
        (staged / _TRAINER).write_text(state.model_dump_json(indent=2) + "\n", encoding="utf-8")
        for name in _COPIES:
            if (self.path / name).exists():
                shutil.copyfile(self.path / name, staged / name)
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
            for file in sorted(staged.iterdir())
        }
        manifest = json.dumps({"step": state.step, "files": files}, indent=2) + "\n"
        (staged / _MANIFEST).write_text(manifest, encoding="utf-8")
        for file in staged.iterdir():
            sync(file)
        sync(staged)
        staged.rename(final.path)
        sync(self.path)

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


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns what a model file holds: parameters and buffers, shared ones under one name."""
    kept = set(_first_names(model).values())
    return {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if name in kept
    }


def load_weights(model: nn.Module, file: Path) -> None:
    """Loads `model.safetensors` into a model.

    Raises:
      CheckpointError: names or shapes differ, or the file is no safetensors file.
    """
    try:
        tensors = safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    first = _first_names(model)
    here = model.state_dict()
    faults = [f"the model has no {name}" for name in sorted(set(tensors) - set(first.values()))]
    for name in sorted(set(first.values())):
        if name not in tensors:
            faults.append(f"it has no {name}")
        elif tensors[name].shape != here[name].shape:
            shapes = [list(tensors[name].shape), list(here[name].shape)]
            faults.append(f"{name} is {shapes[0]}, the model's is {shapes[1]}")
    if faults:
        raise CheckpointError(
            f"{file} does not fit the model:\n  "
            + "\n  ".join(faults[:10])
            + "\nUse the hparams it was trained with (hparams.json beside it)."
        )
    model.load_state_dict({name: tensors[first[name]] for name in here})


def _first_names(model: nn.Module) -> dict[str, str]:
    """Returns for every name of the state dict the first name of the same tensor."""
    seen: dict[tuple[object, ...], str] = {}
    names = {}
    for name, tensor in model.state_dict().items():
        # An empty tensor has no storage to share; its name is its identity.
        same = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        names[name] = seen.setdefault(same, name)
    return names


def _optimizer_names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """Returns the parameters' names in the optimizer's own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    names = _optimizer_names(optimizer, model)
    state: Mapping[int, Mapping[str, object]] = optimizer.state_dict()["state"]
    tensors = {}
    for index, slots in state.items():
        for slot, value in slots.items():
            if value is None:  # e.g. momentum not yet begun
                continue
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"{type(optimizer).__name__} keeps {slot!r} as {type(value).__name__}; only "
                    "tensors can be stored. Keep it as a 0-dimensional tensor."
                )
            tensors[f"{names[index]}/{slot}"] = value.detach().cpu().contiguous()
    return tensors


def _free_name(path: Path) -> Path:
    """Returns the path, or the first of path-1, path-2 ... that does not exist."""
    candidate, number = path, 0
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
