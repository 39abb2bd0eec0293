"""A checkpoint on disk: its content, and verification."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pydantic
import torch
from torch import Tensor, nn

import t2t_torch
from t2t_torch.data.manifest import sha256_of
from t2t_torch.errors import CheckpointError
from t2t_torch.files import read_bytes, read_json
from t2t_torch.remote import fetch
from t2t_torch.run.checksums import Explanations
from t2t_torch.run.storage import sync_folder, write_file
from t2t_torch.run.tensors import (
    STATELESS,
    TensorSlice,
    chunks_of,
    load_optimizer,
    load_weights,
    model_tensors,
    optimizer_tensors,
    part_header,
    part_name,
    read_tensors,
    tensors_at,
)


class SinceReport(pydantic.BaseModel, extra="forbid", frozen=True):
    """Running statistics since the last report, kept so that reports are exact after a resume.

    Attributes:
      sums: loss, weight, positions with data, positions.
      grad_norm: of the last step that was not skipped; None if there was none.
      steps: number of steps.
      skipped: number of skipped steps among them.
    """

    sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    grad_norm: float | None = None
    steps: int = 0
    skipped: int = 0


class TrainerState(pydantic.BaseModel, extra="forbid"):
    """Training state in addition to weights and optimizer, as needed for an exact resume.

    Attributes:
      step: optimizer steps done, including skipped ones.
      batches_consumed: global batches consumed: the position in the data.
      batches_per_step: micro-batches of all processes per step.
      tokens: total loss weight: target tokens without padding, or examples.
      seconds: training time without evaluations, over all resumes.
      seed: seed of initialization, dropout and data order.
      plan_fingerprint: fingerprint of the data order.
      epoch_batches: global batches per epoch; 0 if unknown, as for a mixture.
      version: version of t2t_torch.
      skipped: steps without update, because the loss or the gradient was not finite.
      skipped_in_a_row: consecutive skipped steps up to the last step.
      loss_scale: loss scale of backward passes in float16; 0: not yet known.
      loss_scale_steps: finite steps since its last change.
      evaluated: step of the last evaluation used by the stopping rules.
      watched: the monitored metric and its better direction; see `train/stopping.py`.
      best_value: its best value; None before the first.
      best_loss: the loss at that evaluation, which decides between equal values; None: unknown.
      best_step: step of the best value, or of the first evaluation.
      bad_evaluations: evaluations since then.
      plateau_factor: factor of the learning rate, reduced on plateaus of the metric.
      plateau_value: best value by the plateau's threshold.
      plateau_bad: evaluations since then, or since the last change of the factor.
      mean_begun: step of the evaluation that started weight averaging, if it waits for one.
      mean_values: values of the monitored metric at the evaluations before that.
      since_report: statistics for the next report.
      hooks: state of each hook, by its name.
      task: state of a task, such as the optimizer settings of a trial with its own schedule.
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
    best_loss: float | None = None
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


class Average(Protocol):
    """Running mean of the weights; implemented by `optim.gradient.WeightAverage`."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the means by parameter name; a shared parameter is under its first name."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the result of `tensors`."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A copy of a run's state in CPU memory.

    Attributes:
      state: the training state.
      weights: parameters and buffers; a shared tensor occurs once.
      slots: the optimizer's state, '<parameter>/<slot>'; None for an average of checkpoints.
      stateless: parameters without optimizer state.
      average: the running mean of the parameters, if the run keeps one.
      task: full tensors of `state.task`, by name; of the first process.
      averaged_steps: steps of the checkpoints averaged in `weights`; empty for a run's own.
      share: the slices of sharded tensors held here; None: all tensors are full.
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
        """Copies a run's state; blocks only for the copy.

        With sharded weights each process copies its own shards, including those of the optimizer
        and the average, without communication.

        Args:
          model: the run's model.
          optimizer: the run's optimizer.
          state: the training state.
          average: the running mean of the weights.
          task: tensors of `state.task`.

        Raises:
          CheckpointError: the optimizer's state contains something other than tensors and numbers.
        """
        weights = model_tensors(model)  # first: reshards parameters gathered by a pass
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
        # Pinned memory, cached by torch: no staging copy, one synchronization for all tensors.
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
"""Size and sha256 of files, by name, as in the manifest."""


@dataclasses.dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
      step: optimizer steps done.
      path: folder of the checkpoint.
    """

    step: int
    path: Path

    def verify(self) -> None:
        """Compares every file with the manifest; a damaged copy of a store is copied again.

        Raises:
          CheckpointError: a file is missing, altered, truncated or unreadable, or the folder was
            renamed.
        """
        with self._explaining_faults():
            fetch(self.path)
        try:
            self._verify()
        except CheckpointError:
            if not fetch(self.path, again=True):
                raise
            self._verify()

    def _verify(self) -> None:
        manifest = self.manifest()
        with self._explaining_faults():
            files, step = manifest["files"], manifest["step"]
            kinds = ("model",) if manifest.get("averaged_steps") else ("model", "optimizer")
            if missing := _unlisted(files, kinds):
                raise CheckpointError(f"{self.path}: {MANIFEST} does not list {missing}")
            if step != self.step:
                raise CheckpointError(
                    f"{self.path} is the checkpoint of step {step}: rename it to ckpt-{step}"
                )
            for name, expected in files.items():
                _verify_file(self.path / name, expected["bytes"], expected["sha256"])

    def manifest(self) -> dict[str, Any]:
        """Reads `MANIFEST.json`.

        Raises:
          CheckpointError: it is missing or damaged.
        """
        with self._explaining_faults():
            manifest = read_json(self.path / MANIFEST)
            if not isinstance(manifest, dict):
                raise ValueError("it is no object")
        return manifest

    @contextlib.contextmanager
    def _explaining_faults(self) -> Iterator[None]:
        """Converts errors of missing, unreadable and damaged files to CheckpointError."""
        try:
            yield
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}: {Path(error.filename).name} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{self.path}: {MANIFEST} is damaged: {error}") from error

    def check_vocabularies(self, folder: Path) -> None:
        """Checks that the vocabularies in `folder` are those of the checkpoint.

        Missing vocabularies are ignored; code that needs them reports them.  Files of moments must
        exist: without them numbers would be read on the scale of earlier versions.

        Raises:
          CheckpointError: a vocabulary differs.
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
        """Returns the path of parameters and buffers: a file, or a folder of shards.

        Raises:
          CheckpointError: it is missing.
        """
        stored = tensors_at(self.path, "model")
        if stored is None:
            raise CheckpointError(f"{self.path}: {MODEL} is missing")
        return stored

    @property
    def average(self) -> Path | None:
        """Returns the path of the running mean of the weights, if any."""
        return tensors_at(self.path, "average")

    def trainer_state(self) -> TrainerState:
        """Reads `trainer.json`.

        Raises:
          CheckpointError: the file is damaged, or has the format of another version.
        """
        text = read_bytes(self.path / TRAINER)
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
        """Loads weights and buffers into a model on any device.

        Args:
          model: model with the same hparams.
          averaged: load the running mean of the weights instead, if the run keeps one.

        Raises:
          CheckpointError: names or shapes differ.
        """
        load_weights(model, self.weights, self.average if averaged else None)

    def load_average(self, average: Average, model: nn.Module | None = None) -> None:
        """Loads the running mean of the weights; one that has not started is left unchanged.

        Args:
          average: the run's average.
          model: the model whose sharding applies, if its parameters are sharded.

        Raises:
          CheckpointError: it belongs to another model.
        """
        if self.average is not None:
            like = dict(model.named_parameters()) if model is not None else {}
            average.load(read_tensors(self.average, like))

    def load_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Loads the optimizer's state; its hyperparameters stay those of `hparams`.

        Raises:
          CheckpointError: the checkpoint is of another optimizer, or an average, which has none.
        """
        slots = tensors_at(self.path, "optimizer")
        if slots is None:
            raise CheckpointError(
                f"{self.path} is an average of checkpoints and has no optimizer state to resume "
                "with. Train on from its weights as a new run:  --warm_start_from="
                f"{self.path} --output_dir=..."
            )
        load_optimizer(optimizer, model, slots)

    def task_tensors(self) -> dict[str, Tensor]:
        """Returns the full tensors of `trainer_state().task`.

        Raises:
          CheckpointError: the file is damaged.
        """
        stored = tensors_at(self.path, "task")
        return read_tensors(stored) if stored else {}

    @classmethod
    def write_tensors(cls, path: Path, snapshot: Snapshot) -> Files:
        """Writes the tensors of a snapshot into existing folders, flushed to disk.

        Returns:
          the manifest entries of the files, each verified by reading it back.

        Raises:
          OSError: they cannot be written.
          CheckpointError: the content read back differs.
        """
        headers = {"optimizer": {STATELESS: json.dumps(snapshot.stateless)}}
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
        cls, path: Path, snapshot: Snapshot, tensors: Files, metadata: Explanations
    ) -> None:
        """Writes all other files, the manifest last, and flushes the folder to disk.

        Args:
          path: folder of the tensors.
          snapshot: the snapshot.
          tensors: manifest entries of the tensor files.
          metadata: metadata of the run.

        Raises:
          OSError: it cannot be written.
          CheckpointError: the content read back differs.
        """
        state = snapshot.state.model_dump_json(indent=2) + "\n"
        rest = {name: [content] for name, content in metadata.copies.items()}
        files = {**tensors, **_written(path, {TRAINER: [state.encode()], **rest})}
        manifest: dict[str, Any] = {"step": snapshot.state.step, "files": files}
        if metadata.vocabularies:
            manifest["vocabularies"] = dict(metadata.vocabularies)
        if snapshot.averaged_steps:
            manifest["averaged_steps"] = list(snapshot.averaged_steps)
        text = (json.dumps(manifest, indent=2) + "\n").encode()
        _written(path, {MANIFEST: [text]})
        if snapshot.share is not None:
            for kind in kinds_of(snapshot):
                sync_folder(path / kind)
        sync_folder(path)


def kinds_of(snapshot: Snapshot) -> dict[str, Mapping[str, Tensor]]:
    """Returns the tensors of a snapshot, grouped by file kind."""
    kinds = {"model": snapshot.weights}
    if snapshot.slots is not None:
        kinds["optimizer"] = snapshot.slots
    if snapshot.average:
        kinds["average"] = snapshot.average
    if snapshot.task and snapshot.share is None:
        kinds["task"] = snapshot.task
    return kinds


def _written(path: Path, contents: Mapping[str, Iterable[bytes | memoryview]]) -> Files:
    """Writes files and verifies them by reading; returns their manifest entries."""
    files: dict[str, dict[str, Any]] = {}
    for name, chunks in contents.items():
        size, sha256 = write_file(path / name, chunks)
        files[name] = {"bytes": size, "sha256": sha256}
    for name, written in files.items():
        _verify_file(path / name, written["bytes"], written["sha256"])
    return files


def _verify_file(file: Path, size: int, sha256: str) -> None:
    if (actual := file.stat().st_size) != size:
        raise CheckpointError(f"{file} has {actual} bytes; expected {size}")
    if sha256_of(file) != sha256:
        raise CheckpointError(f"{file} was altered: its sha256 is not the manifest's")


def _unlisted(files: Collection[str], kinds: Iterable[str]) -> list[str]:
    """Returns the files missing from a manifest."""
    missing = {TRAINER} - set(files)
    for kind in kinds:
        parts = [name for name in files if name.startswith(f"{kind}/")]
        if parts:
            size = int(Path(parts[0]).stem.rpartition("-")[2])
            missing |= {part_name(kind, rank, size) for rank in range(size)} - set(files)
        elif f"{kind}.safetensors" not in files:
            missing.add(f"{kind}.safetensors")
    return sorted(missing)
