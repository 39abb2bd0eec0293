"""The run directory (`--output_dir`): everything that resuming and decoding need, in one folder.

task.json          what is learnt by what: problem, model, hparams set, the user's folders, version
hparams.json       the resolved hyperparameters, and who set each
vocab.*            the vocabularies, copied
ckpt-<step>/       checkpoints; see `checkpoint.py`
latest.json        a hint which is the newest; the folders are the truth
SHA256SUMS         the sha256 of task.json, hparams.json and the like; see `checksums.py`
config.json        the flags and hyperparameters that reproduce the run; see `bin/run_json.py`
warm_start.txt     what a warm start has loaded, and what it has not
ended.json         the step at which it ended; gone when it goes on
metrics.jsonl      one line for each report
events.*, eval/    TensorBoard
train.lock         held (flock) by the process that trains
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pydantic

from t2t_torch.checkpoint.explanations import (
    checkpoint_folders,
    folders_set_aside,
    unfinished_folders,
)
from t2t_torch.data.staging import STAGED_SUFFIX, staged
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.train import checksums
from t2t_torch.train.lock import Lock
from t2t_torch.train.resume import changed_fields

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

    HParamsT = TypeVar("HParamsT", bound=HParams)


class TaskRecord(pydantic.BaseModel, frozen=True, extra="forbid"):
    """What a run directory is a run of (`task.json`).

    Attributes:
      problem: with `_rev` and `_copy`; empty of a trial.
      model: the registered name.
      hparams_set: the set that the run began with.
      trial: the name of the trial's class; empty of a problem.
      usr_dirs: `--t2t_usr_dir`, absolute.
      train_steps: where the run ends, as was asked for last; 0 if nobody has said.
      version: of t2t_torch.
    """

    problem: str = ""
    model: str = ""
    hparams_set: str = ""
    trial: str = ""
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
        self._pending: list[Callable[[], None]] = []
        self._texts: dict[str, str] = {}

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
    def _end_file(self) -> Path:
        return self.path / "ended.json"

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
                f"{self._task_file} is damaged: {error}. {self._restoring(self._task_file)}"
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
                f"{self._hparams_file} does not fit {kind.__name__}: {error} "
                f"{self._restoring(self._hparams_file)}"
            ) from error

    @property
    def has_checkpoints(self) -> bool:
        """Whether there are checkpoints, whole, broken or set aside; an unfinished save is none."""
        return bool(checkpoint_folders(self.path) or folders_set_aside(self.path))

    def _restoring(self, file: Path) -> str:
        told = checksums.how_to_restore(self.path, file.name)
        if not (self.exists or " cp " in told):
            told += (
                " If an Estimator made this run in Python, make the same Estimator again and call "
                "its begin(): it writes the file."
            )
        return told

    def _read(self, file: Path) -> str:
        try:
            return checksums.read_checked(self.path, file.name).decode()
        except (FileNotFoundError, NotADirectoryError):
            if self.has_checkpoints:
                raise CheckpointError(f"{file} is missing. {self._restoring(file)}") from None
            raise CheckpointError(
                f"'{self.path}' is not a run directory: it has no {file.name}. Expected a folder "
                "that t2t-trainer wrote: give its --output_dir, or train first: t2t-trainer "
                f"--problem=... --model=... --hparams_set=... --data_dir=... "
                f"--output_dir={self.path}"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"{file} cannot be read: {error}. {self._restoring(file)}"
            ) from error

    def check_is_of(self, task: TaskRecord) -> None:
        """Checks that the run that is here is one of this problem and model.

        Raises:
          CheckpointError: it is another one's.
        """
        known = self.task()
        if bool(known.trial) != bool(task.trial):
            here = f"trial '{known.trial}'" if known.trial else f"problem '{known.problem}'"
            raise CheckpointError(
                f"'{self.path}' holds a run of {here}. Use another --output_dir, or go on with "
                f"that run: t2t-trainer --output_dir={self.path}"
            )
        for what in ("problem", "model"):
            here, asked = getattr(known, what), getattr(task, what)
            if here != asked:
                raise CheckpointError(
                    f"'{self.path}' holds a run of {what} '{here}', not '{asked}'. "
                    f"Use another --output_dir, or --{what}={here} to go on with that run."
                )

    def check_hparams(
        self, hparams: HParams, *, resume_data: str = "exact", trains: bool = True
    ) -> list[str]:
        """Returns "field: old -> new" of what these change.

        Args:
          hparams: asked for.
          resume_data: as `changed_fields` takes it.
          trains: whether the run goes on, and is not only read.

        Raises:
          CheckpointError: the run's checkpoints are of other hparams.
        """
        before = self.hparams(type(hparams))
        return changed_fields(before, hparams, resume_data=resume_data, trains=trains)

    def begin(self, task: TaskRecord, hparams: HParams, *, resume_data: str = "exact") -> list[str]:
        """Makes this the run directory of a task: `claim`, then `commit`."""
        changes = self.claim(task, hparams, resume_data=resume_data)
        self.commit()
        return changes

    def claim(
        self, task: TaskRecord, hparams: HParams, *, config: str = "", resume_data: str = "exact"
    ) -> list[str]:
        """Checks that this is, or can become, the run directory of a task, and locks it.

        Changes nothing of a run: `commit` does, when all else is known to fit too.

        Args:
          task: what is trained.
          hparams: how.
          config: the text of `config.json`; empty: none is written.
          resume_data: as `changed_fields` takes it.

        Returns:
          "field: old -> new" of the hparams, and of `train_steps`, that a resumed run changes.

        Raises:
          CheckpointError: it belongs to another problem or model, to hparams that this run cannot
            go on with, or to a process that trains here; or nothing can be written here.
        """
        if self.exists or self.has_checkpoints:
            self.check_is_of(task)
        self.lock()
        changes = []
        try:
            if self.has_checkpoints:
                changes = self.check_hparams(hparams, resume_data=resume_data)
                steps = self.task().train_steps
                if steps and task.train_steps and steps != task.train_steps:
                    changes.append(f"train_steps: {steps} -> {task.train_steps}")
        except CheckpointError:
            self.unlock()
            raise
        texts = {self._hparams_file.name: hparams.to_json()}
        if config:
            texts["config.json"] = config
        self._pend(task, texts)
        return changes

    def claim_files(self, task: TaskRecord, files: Mapping[str, str]) -> None:
        """Locks this for a task whose own files say how it is trained; `commit` will write them.

        Args:
          task: what is trained.
          files: texts by name.

        Raises:
          CheckpointError: it belongs to another kind of run, or to a process that trains here; or
            nothing can be written here.
        """
        if self.exists or self.has_checkpoints:
            self.check_is_of(task)
        self.lock()
        self._pend(task, files)

    def _pend(self, task: TaskRecord, texts: Mapping[str, str]) -> None:
        # task.json last: it makes a folder a run, and nothing may be missing then.
        self._texts = {**texts, self._task_file.name: task.model_dump_json(indent=2) + "\n"}
        self._pending = []

    def claim_for(
        self, task: TaskRecord, hparams: HParams, *, vocabularies: Iterable[str], vocab_dir: Path
    ) -> None:
        """Has `commit` write the files of a run that no command has claimed, as one in Python.

        Does nothing if they are there or were claimed.
        """
        if not self.exists and not self._texts:
            self._pend(task, {self._hparams_file.name: hparams.to_json()})
            self.claim_vocabularies(vocabularies, vocab_dir)

    def commit(self) -> None:
        """Writes what `claim` and `claim_vocabularies` have found to fit; once."""
        pending, self._pending = self._pending, []
        texts, self._texts = self._texts, {}
        for write in pending:
            write()
        if texts:
            contents = {name: text.encode() for name, text in texts.items()}
            with checksums.renewed(self.path, contents, folders=["code/"]):
                for name, text in texts.items():
                    _write(self.path / name, text)
                self._end_file.unlink(missing_ok=True)

    def note_end(self, step: int) -> None:
        """Notes that training is over, for those who wait for checkpoints."""
        content = {"step": step, "sha256": hashlib.sha256(str(step).encode()).hexdigest()}
        _write(self._end_file, json.dumps(content) + "\n")

    def ended_at(self) -> int | None:
        """Returns the step at which training was over; None if it goes on, as far as is known."""
        try:
            content = json.loads(self._end_file.read_text(encoding="utf-8"))
            step = int(content["step"])
            digest = hashlib.sha256(str(step).encode()).hexdigest()
            return step if content.get("sha256", digest) == digest else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def claim_vocabularies(self, files: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Checks what `copy_vocabularies` checks; `commit` will copy."""
        names = list(files)
        self.check_vocabularies(names, data_dir)
        self._pending.append(functools.partial(self.copy_vocabularies, names, data_dir))

    def copy_vocabularies(self, files: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Copies vocabularies in, so that decoding needs the run directory alone.

        Args:
          files: names relative to `data_dir`.
          data_dir: where t2t-datagen wrote them.

        Raises:
          CheckpointError: a copy is here already and differs: the data was made anew since.
        """
        names = list(files)
        self.check_vocabularies(names, data_dir)
        for name in names:
            source, copy = Path(data_dir) / name, self.path / name
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                with staged(copy) as file:
                    shutil.copyfile(source, file)

    def check_vocabularies(self, names: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Checks that the run's vocabularies are those of the data.

        Args:
          names: of files, relative to `data_dir`; one that the run has not yet is not compared.
          data_dir: where t2t-datagen wrote them.

        Raises:
          CheckpointError: one differs: the data was made anew since.
        """
        for name in names:
            source, copy = Path(data_dir) / name, self.path / name
            if copy.exists() and copy.read_bytes() != source.read_bytes():
                raise CheckpointError(
                    f"the vocabulary {source} differs from {copy}, with which this run began: its "
                    "ids mean other words now. Train in another --output_dir, or point --data_dir "
                    "to the data that this run began with."
                )

    def lock(self) -> None:
        """Makes this process the only one that trains here, until it ends or calls `unlock`.

        Raises:
          CheckpointError: another process trains here, or this folder cannot be written to.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError("it is not writable")
            self._lock = Lock(self.path / "train.lock")
            self._remove_leftovers()
        except OSError as error:
            self.unlock()
            raise CheckpointError(
                f"--output_dir={self.path} cannot be made or written to: "
                f"{error.strerror or error}. Give a folder that you may write to."
            ) from error

    def unlock(self) -> None:
        """Lets others train here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _remove_leftovers(self) -> None:
        """Deletes what crashes left behind.  Only the process that holds the lock may."""
        for path in (*self.path.glob(f".*{STAGED_SUFFIX}"), *unfinished_folders(self.path)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _write(file: Path, text: str) -> None:
    with staged(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
