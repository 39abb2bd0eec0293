"""The run directory (`--output_dir`): everything that resuming and decoding need, in one folder.

task.json          what is learnt by what: problem, model, hparams set, the user's folders, version
hparams.json       the resolved hyperparameters, and who set each
vocab.*            the vocabularies, copied
ckpt-<step>/       checkpoints; see `checkpoint.py`
latest.json        a hint which is the newest; the folders are the truth
metrics.jsonl      one line for each report
events.*, eval/    TensorBoard
train.lock         held (flock) by the process that trains
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pydantic

from t2t_torch.data.staging import STAGED_SUFFIX, staged
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.train.resume import changed_fields

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

    HParamsT = TypeVar("HParamsT", bound=HParams)


class TaskRecord(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What a run directory is a run of (`task.json`).

    Attributes:
      problem: with `_rev` and `_copy`.
      model: the registered name.
      hparams_set: the set that the run began with.
      usr_dirs: `--t2t_usr_dir`, absolute.
      train_steps: where the run ends, as was asked for last; 0 if nobody has said.
      version: of t2t_torch.
    """

    problem: str
    model: str
    hparams_set: str
    usr_dirs: tuple[str, ...] = ()
    train_steps: int = 0
    version: str = ""


class RunDirectory:
    """The files of one run, except the checkpoints' inside.

    Args:
      path: need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self._task_file.exists()

    @property
    def _task_file(self) -> Path:
        return self.path / "task.json"

    @property
    def _hparams_file(self) -> Path:
        return self.path / "hparams.json"

    def task(self) -> TaskRecord:
        """Reads `task.json`.

        Raises:
          CheckpointError: there is none, or it is not what this library writes.
        """
        text = self._read(self._task_file)
        try:
            return TaskRecord.model_validate_json(text)
        except pydantic.ValidationError as error:
            raise CheckpointError(
                f"{self._task_file} is damaged: {error}. Restore it from a checkpoint: "
                f"cp {self.path}/ckpt-STEP/task.json {self._task_file}"
            ) from error

    def hparams(self, kind: type[HParamsT]) -> HParamsT:
        """Reads `hparams.json`.

        Args:
          kind: the class that the model needs, `model.HParams`.

        Raises:
          CheckpointError: there is none, or it does not fit the class.
        """
        text = self._read(self._hparams_file)
        try:
            return kind.from_json(text)
        except HParamsError as error:
            raise CheckpointError(
                f"{self._hparams_file} does not fit {kind.__name__}: {error}"
            ) from error

    def _read(self, file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CheckpointError(
                f"'{self.path}' is not a run directory: it has no {file.name}. Expected a folder "
                "that t2t-trainer wrote: give its --output_dir, or train first: t2t-trainer "
                f"--problem=... --model=... --hparams_set=... --data_dir=... "
                f"--output_dir={self.path}"
            ) from None

    def begin(self, task: TaskRecord, hparams: HParams) -> list[str]:
        """Makes this the run directory of a task, or checks that it is, and locks it.

        Returns:
          "field: old -> new" of the hparams, and of `train_steps`, that a resumed run changes.

        Raises:
          CheckpointError: it belongs to another problem or model, to hparams that this run cannot
            go on with, or to a process that trains here.
        """
        if self.exists:
            known = self.task()
            for what in ("problem", "model"):
                here, asked = getattr(known, what), getattr(task, what)
                if here != asked:
                    raise CheckpointError(
                        f"'{self.path}' holds a run of {what} '{here}', not '{asked}'. "
                        f"Use another --output_dir, or --{what}={here} to go on with that run."
                    )
        self.lock()
        changes = []
        if any(self.path.glob("ckpt-*")):
            try:
                changes = changed_fields(self.hparams(type(hparams)), hparams)
                steps = self.task().train_steps
            except CheckpointError:
                self.unlock()
                raise
            if steps and steps != task.train_steps:
                changes.append(f"train_steps: {steps} -> {task.train_steps}")
        for file, text in (
            (self._hparams_file, hparams.to_json()),
            (self._task_file, task.model_dump_json(indent=2) + "\n"),
        ):
            with staged(file) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return changes

    def copy_vocabularies(self, files: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Copies vocabularies in, so that decoding needs the run directory alone.

        Args:
          files: names relative to `data_dir`.
          data_dir: where t2t-datagen wrote them.

        Raises:
          CheckpointError: a copy is here already and differs: the data was made anew since.
        """
        for name in files:
            source, copy = Path(data_dir) / name, self.path / name
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                with staged(copy) as file:
                    shutil.copyfile(source, file)
            elif copy.read_bytes() != source.read_bytes():
                raise CheckpointError(
                    f"the vocabulary {source} differs from {copy}, with which this run began: its "
                    "ids mean other words now. Train in another --output_dir, or point --data_dir "
                    "to the data that this run began with."
                )

    def lock(self) -> None:
        """Makes this process the only one that trains here, until it ends or calls `unlock`.

        Raises:
          CheckpointError: another process trains here.
        """
        if self._lock is None:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.path / "train.lock")
            self._remove_leftovers()

    def unlock(self) -> None:
        """Lets others train here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _remove_leftovers(self) -> None:
        """Deletes what crashes left behind.  Only the process that holds the lock may."""
        for pattern in (f".*{STAGED_SUFFIX}", "ckpt-*.tmp-*", "ckpt-*.removed*"):
            for path in self.path.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


class Lock:
    """An flock on a file; the kernel drops it when the process ends, however it ends.

    Args:
      path: the file; created, never removed (removing a locked file would let a second one in).

    Raises:
      CheckpointError: another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 256).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise CheckpointError(
                f"another process trains in '{path.parent}' ({holder or 'unknown'}). "
                "Wait for it, stop it, or use another --output_dir."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(
            self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0
        )

    def release(self) -> None:
        """Lets others train here."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
