"""A checkpoint on disk: what is in it, and whether it is whole."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pydantic
import torch
from torch import Tensor, nn

import t2t_torch
from t2t_torch.checkpoint.storage import make_folder, sync_folder, write_file
from t2t_torch.checkpoint.tensors import (
    TensorSlice,
    chunks_of,
    load_optimizer,
    load_weights,
    model_tensors,
    optimizer_metadata,
    optimizer_tensors,
    part_header,
    part_name,
    read_tensors,
    tensors_at,
)
from t2t_torch.data.manifest import sha256_of
from t2t_torch.errors import CheckpointError

# Where a run stands, beside weights and optimizer.


class SinceReport(pydantic.BaseModel, extra="forbid", frozen=True):
    """What was counted since the last report, so that the next one is exact over a resume.

    Attributes:
      sums: loss, weight, positions with data, positions.
      grad_norm: of the last step that was not skipped; None if there was none.
      steps: in all.
      skipped: of them.
    """

    sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    grad_norm: float | None = None
    steps: int = 0
    skipped: int = 0


class TrainerState(pydantic.BaseModel, extra="forbid"):
    """Where a run stands, beside weights and optimizer: all that decides how it goes on.

    Attributes:
      step: optimizer steps done, those that were skipped among them.
      batches_consumed: global batches consumed: the position in the data.
      batches_per_step: micro-batches of all processes that make a step.
      tokens: the loss's weight seen: target tokens, padding not counted, or examples.
      seconds: trained, without evaluations, over all resumes.
      seed: of initialization, dropout and order.
      plan_fingerprint: of the order of the data.
      epoch_batches: global batches of an epoch; 0 if not known, as of a mixture.
      version: of t2t_torch.
      skipped: steps that moved nothing, as the loss or the gradient was not finite.
      skipped_in_a_row: the last of them, if the last step was one.
      loss_scale: what losses are multiplied by before a backward pass in float16; 0: not yet known.
      loss_scale_steps: finite steps since it last changed.
      evaluated: step of the last evaluation that the stopping rules have seen.
      watched: the metric that they watch, and its better direction; see `train/stopping.py`.
      best_value: the best that it was; None before the first.
      best_step: when; or when it was first looked at.
      bad_evaluations: evaluations since then.
      plateau_factor: what the learning rate is multiplied by, as the metric stood still.
      plateau_value: the best that it was, by the plateau's threshold.
      plateau_bad: evaluations since then, or since the factor last changed.
      mean_begun: step of the evaluation at which the mean of the weights began, if it waits for
        one.
      mean_values: the watched metric at evaluations that it has waited for.
      since_report: what the next report will be of.
      hooks: what each hook remembers, by its name.
      task: what a task remembers, as the optimizer's settings of a trial that schedules its own.
    """

    step: int = 0
    batches_consumed: int = 0
    batches_per_step: int = 1
    tokens: float = 0.0
    seconds: float = 0.0
    seed: int = 0
    plan_fingerprint: str = ""
    epoch_batches: int = 0
    version: str = ""
    skipped: int = 0
    skipped_in_a_row: int = 0
    loss_scale: float = 0.0
    loss_scale_steps: int = 0
    evaluated: int = -1
    watched: str = ""
    best_value: float | None = None
    best_step: int = -1
    bad_evaluations: int = 0
    plateau_factor: float = 1.0
    plateau_value: float | None = None
    plateau_bad: int = 0
    mean_begun: int = -1
    mean_values: tuple[float, ...] = ()
    since_report: SinceReport = SinceReport()
    hooks: dict[str, dict[str, Any]] = {}
    task: dict[str, Any] = {}


# What a checkpoint will hold, copied away from a run that goes on.


class Average(Protocol):
    """A running mean of the weights, as `optim.gradient.WeightAverage` is one."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the means by the parameters' names, of a shared one by its first."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back what `tensors` returned."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A state of a run in memory of its own, on the CPU.

    Attributes:
      state: where the run stands.
      weights: parameters and buffers; a shared one stands once.
      slots: of the optimizer, '<parameter>/<slot>'; None of an average of checkpoints.
      stateless: parameters for which the optimizer has no slots.
      average: the running mean of the parameters, if the run keeps one.
      task: tensors that belong to `state.task`, by name; whole, of the first process.
      averaged_steps: of the checkpoints that `weights` are the mean of; empty for a run's own.
      share: of what processes hold parts of, which parts the tensors here are; None: all is whole.
    """

    state: TrainerState
    weights: Mapping[str, Tensor]
    slots: Mapping[str, Tensor] | None
    stateless: tuple[str, ...] = ()
    average: Mapping[str, Tensor] | None = None
    task: Mapping[str, Tensor] | None = None
    averaged_steps: tuple[int, ...] = ()
    share: TensorSlice | None = None

    @classmethod
    def take(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
        average: Average | None = None,
        task: Mapping[str, Tensor] | None = None,
    ) -> Snapshot:
        """Copies a run's state; takes as long as copying takes.

        Where each process holds a part of the weights, each copies its own parts, of the optimizer
        and the average, too.  Nothing is exchanged and nothing is put together.

        Args:
          model: of the run.
          optimizer: of the run.
          state: where the run stands.
          average: of the weights.
          task: tensors that belong to `state.task`.

        Raises:
          CheckpointError: the optimizer keeps something that is neither a tensor nor a number.
        """
        weights = model_tensors(model)  # first: it divides again what a pass has put together
        slots, stateless = optimizer_tensors(optimizer, model)
        tensors: dict[str, Mapping[str, Tensor]] = {"model": weights, "optimizer": slots}
        if average is not None:
            tensors["average"] = average.tensors()
        share, parts = TensorSlice.of(tensors)
        own = {kind: _own(named) for kind, named in parts.items()}
        return cls(
            state=state.model_copy(deep=True),
            weights=own["model"],
            slots=own["optimizer"],
            stateless=stateless,
            average=own.get("average"),
            task=_own(task or {}),
            share=share,
        )


def _own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors to the CPU, contiguous; from a GPU all at once."""
    copies, devices = {}, set()
    for name, tensor in tensors.items():
        on_gpu = tensor.device.type == "cuda"
        # Pinned memory, which torch keeps for the next time: no detour, no wait for each tensor.
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
        copies[name] = copy.copy_(tensor.detach(), non_blocking=on_gpu)
        if on_gpu:
            devices.add(tensor.device)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return copies


MANIFEST = "MANIFEST.json"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
AVERAGE = "average.safetensors"
TRAINER = "trainer.json"

Files = Mapping[str, Mapping[str, Any]]
"""The size and sha256 of files, by name, as the manifest lists them."""


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
          CheckpointError: a file is missing, altered, truncated or cannot be read, or the folder
            was renamed.
        """
        manifest = self.manifest()
        try:
            files, step = manifest["files"], manifest["step"]
            kinds = ("model",) if manifest.get("averaged_steps") else ("model", "optimizer")
            missing = _unlisted(files, kinds)
            if missing:
                raise CheckpointError(f"{self.path}: {MANIFEST} does not list {missing}")
            if step != self.step:
                raise CheckpointError(
                    f"{self.path} is the checkpoint of step {step}: rename it to ckpt-{step}"
                )
            for name, expected in files.items():
                _verify_file(self.path / name, expected["bytes"], expected["sha256"])
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}: {Path(error.filename).name} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{self.path}: {MANIFEST} is damaged: {error}") from error

    def manifest(self) -> dict[str, Any]:
        """Reads `MANIFEST.json`.

        Raises:
          CheckpointError: it is missing or damaged.
        """
        try:
            manifest = json.loads((self.path / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise CheckpointError(f"{self.path}: {MANIFEST} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from error
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {MANIFEST} is damaged: {error}") from error
        if not isinstance(manifest, dict):
            raise CheckpointError(f"{self.path}: {MANIFEST} is damaged: it is no object")
        return manifest

    def check_vocabularies(self, folder: Path) -> None:
        """Checks that ids mean in `folder` the words that they meant when this was saved.

        A vocabulary that is not there is not looked at: who needs it says so.  Moments have to be
        there: without them numbers would be read as those of earlier versions, on another scale.

        Raises:
          CheckpointError: a vocabulary is another one.
        """
        for name, sha256 in self.manifest().get("vocabularies", {}).items():
            file = folder / name
            if name.startswith("moments.") and not file.exists():
                raise CheckpointError(
                    f"{file} is missing: the mean and deviation by which numbers of this run are "
                    "standardized. Copy it back from the data that this run was trained on:  "
                    f"cp DATA_DIR/{name} {file}"
                )
            if file.exists() and sha256_of(file) != sha256:
                raise CheckpointError(
                    f"the vocabulary {file} was altered since {self.path.name} was saved: its ids "
                    "mean other words now. Copy it back from the data that this run was trained "
                    f"on:  cp DATA_DIR/{name} {file}"
                )

    @property
    def weights(self) -> Path:
        """Where parameters and buffers are: a file, or a folder of parts.

        Raises:
          CheckpointError: they are missing.
        """
        found = tensors_at(self.path, "model")
        if found is None:
            raise CheckpointError(f"{self.path}: {MODEL} is missing")
        return found

    @property
    def average(self) -> Path | None:
        """Where the running mean of the weights is, if the run keeps one."""
        return tensors_at(self.path, "average")

    def trainer_state(self) -> TrainerState:
        """Reads `trainer.json`.

        Raises:
          CheckpointError: another version wrote it in another form, or it is damaged.
        """
        text = (self.path / TRAINER).read_bytes()
        try:
            return TrainerState.model_validate_json(text)
        except pydantic.ValidationError as error:
            try:
                version = json.loads(text)["version"]
            except (ValueError, KeyError, TypeError):
                version = "unknown"
            raise CheckpointError(
                f"{self.path / TRAINER}, written by t2t_torch {version}, cannot be read by this "
                f"t2t_torch {t2t_torch.__version__}: {error}. Use the version that wrote it."
            ) from error

    def load_model(self, model: nn.Module, *, averaged: bool = False) -> None:
        """Loads weights and buffers into a model, on whatever device it is.

        Args:
          model: of the same hparams.
          averaged: the running mean of the weights in their place, if the run keeps one.

        Raises:
          CheckpointError: names or shapes differ.
        """
        load_weights(model, self.weights, self.average if averaged else None)

    def load_average(self, average: Average, model: nn.Module | None = None) -> None:
        """Loads the running mean of the weights; one that was not begun yet stays as it is.

        Args:
          average: of the run.
          model: whose parameters it is divided as, if they are.

        Raises:
          CheckpointError: it is of another model.
        """
        if self.average is not None:
            like = dict(model.named_parameters()) if model is not None else {}
            average.load(read_tensors(self.average, like))

    def load_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Loads the optimizer's slots; its hyperparameters stay those of `hparams`.

        Raises:
          CheckpointError: the checkpoint is of another optimizer, or an average, which has none.
        """
        slots = tensors_at(self.path, "optimizer")
        if slots is None:
            raise CheckpointError(
                f"{self.path} is an average of checkpoints and has no optimizer's state to go on "
                "with. Train on from its weights as a new run:  --warm_start_from="
                f"{self.path} --output_dir=..."
            )
        load_optimizer(optimizer, model, slots)

    def task_tensors(self) -> dict[str, Tensor]:
        """Returns the tensors that belong to `trainer_state().task`, whole.

        Raises:
          CheckpointError: the file is damaged.
        """
        found = tensors_at(self.path, "task")
        return read_tensors(found) if found else {}

    @classmethod
    def write(
        cls,
        path: Path,
        snapshot: Snapshot,
        *,
        copies: Mapping[str, bytes],
        vocabularies: Mapping[str, str],
    ) -> None:
        """Writes a snapshot to a new folder, flushes it to the disk and reads it back.

        Args:
          path: must not exist; not yet the checkpoint's name.
          snapshot: what is written.
          copies: files that explain it, by name.
          vocabularies: the sha256 of each, by name.

        Raises:
          OSError: it cannot be written.
          CheckpointError: what can be read there is not what was written.
        """
        make_folder(path)
        files = cls.write_tensors(path, snapshot)
        cls.write_rest(path, snapshot, files, copies=copies, vocabularies=vocabularies)

    @classmethod
    def write_tensors(cls, path: Path, snapshot: Snapshot) -> Files:
        """Writes the tensors of a snapshot, those of a share into folders that are there.

        Returns:
          what the manifest says of the files, each read back.

        Raises:
          OSError: they cannot be written.
          CheckpointError: what can be read there is not what was written.
        """
        headers = {"optimizer": optimizer_metadata(snapshot.stateless)}
        contents = {}
        for kind, tensors in kinds_of(snapshot).items():
            name, header = f"{kind}.safetensors", headers.get(kind, {})
            if snapshot.share is not None:
                name = part_name(kind, snapshot.share.rank, snapshot.share.size)
                header |= part_header(snapshot.share.offsets[kind])
            contents[name] = chunks_of(tensors, header)
        return _written(path, contents)

    @classmethod
    def write_rest(
        cls,
        path: Path,
        snapshot: Snapshot,
        tensors: Files,
        *,
        copies: Mapping[str, bytes],
        vocabularies: Mapping[str, str],
    ) -> None:
        """Writes what is no tensor, the manifest last, and flushes the folder to the disk.

        Args:
          path: where the tensors are.
          snapshot: whose state is written.
          tensors: what the manifest says of the files of tensors.
          copies: files that explain it, by name.
          vocabularies: the sha256 of each, by name.

        Raises:
          OSError: it cannot be written.
          CheckpointError: what can be read there is not what was written.
        """
        state = snapshot.state.model_dump_json(indent=2) + "\n"
        rest = {name: [content] for name, content in copies.items()}
        files = {**tensors, **_written(path, {TRAINER: [state.encode()], **rest})}
        manifest: dict[str, Any] = {"step": snapshot.state.step, "files": files}
        if vocabularies:
            manifest["vocabularies"] = dict(vocabularies)
        if snapshot.averaged_steps:
            manifest["averaged_steps"] = list(snapshot.averaged_steps)
        text = (json.dumps(manifest, indent=2) + "\n").encode()
        _written(path, {MANIFEST: [text]})
        if snapshot.share is not None:
            for kind in kinds_of(snapshot):
                sync_folder(path / kind)
        sync_folder(path)


def kinds_of(snapshot: Snapshot) -> dict[str, Mapping[str, Tensor]]:
    """Returns the tensors of a snapshot by the kinds of which there are files."""
    kinds = {"model": snapshot.weights}
    if snapshot.slots is not None:
        kinds["optimizer"] = snapshot.slots
    if snapshot.average:
        kinds["average"] = snapshot.average
    if snapshot.task and snapshot.share is None:
        kinds["task"] = snapshot.task
    return kinds


def _written(path: Path, contents: Mapping[str, Iterable[bytes | memoryview]]) -> Files:
    """Writes files and reads them back; returns what the manifest says of them."""
    files: dict[str, dict[str, Any]] = {}
    for name, chunks in contents.items():
        size, sha256 = write_file(path / name, chunks)
        files[name] = {"bytes": size, "sha256": sha256}
    for name, written in files.items():
        _verify_file(path / name, written["bytes"], written["sha256"])
    return files


def _verify_file(file: Path, size: int, sha256: str) -> None:
    found = file.stat().st_size
    if found != size:
        raise CheckpointError(f"{file} has {found} bytes; expected {size}")
    if sha256_of(file) != sha256:
        raise CheckpointError(f"{file} was altered: its sha256 is not the manifest's")


def _unlisted(files: Collection[str], kinds: Iterable[str]) -> list[str]:
    """Returns which files a manifest should list and does not."""
    missing = {TRAINER} - set(files)
    for kind in kinds:
        parts = [name for name in files if name.startswith(f"{kind}/")]
        if parts:
            size = int(Path(parts[0]).stem.rpartition("-")[2])
            missing |= {part_name(kind, rank, size) for rank in range(size)} - set(files)
        elif f"{kind}.safetensors" not in files:
            missing.add(f"{kind}.safetensors")
    return sorted(missing)
