"""The run directory (`--output_dir`): all files needed to resume and to decode, in one folder.

task.json          problem, model, hparams set, the user's folders, version
hparams.json       the resolved hyperparameters, with the source of each
vocab.*            the vocabularies, copied
code/              the users' folders or the trial, copied; see `code.py`
declarations/      the declarations of the problem and its parts, copied
ckpt-<step>/       checkpoints; see `checkpoint.py`
latest.json        a hint at the newest checkpoint; only the folders are authoritative
SHA256SUMS         the sha256 of task.json, hparams.json and the like; see `checksums.py`
config.json        flags and hyperparameters that reproduce the run; see `workflows/config_file.py`
warm_start.txt     the weights that a warm start has loaded, and those that it has not
ended.json         the step at which the run ended; deleted when it resumes
metrics.jsonl      one line for each report
events.*, eval/    TensorBoard
train.lock         held (flock) by the process that trains
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pydantic

from t2t_torch import registry, remote
from t2t_torch.atomic_files import STAGED_SUFFIX, file_lock, staged, write_text
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.files import copy_regular, read_bytes, read_json, replace_if_other
from t2t_torch.run.checksums import how_to_restore, read_checked, renewed
from t2t_torch.run.resuming import changed_fields
from t2t_torch.run.storage import checkpoint_folders, folders_set_aside, unfinished_folders

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

    HParamsT = TypeVar("HParamsT", bound=HParams)


_OF_THE_PLACE = frozenset(
    "version processes hparams data_dir data_dir_from_run t2t_usr_dir train_steps".split()
)
"""Settings in `config.json` that may differ without a change of the training."""


@contextlib.contextmanager
def training_lock(path: Path) -> Iterator[None]:
    """Context of a process that alone trains in the folder of a file, also of one in a store.

    Raises:
      CheckpointError: on entry, if another process does.
    """

    def refuse(holder: str) -> NoReturn:
        raise CheckpointError(
            f"another training runs in '{path.parent}' ({holder}). "
            "Wait for it, stop it, or use another --output_dir."
        ) from None

    with file_lock(path, refuse), remote.locked(path):
        yield


class TaskRecord(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Description of a run (`task.json`).

    Attributes:
      problem: name of the problem, with `_rev` and `_copy`; empty for a trial.
      model: the registered name.
      hparams_set: the set that the run was started with.
      trial: name of the trial's class; empty for a problem.
      usr_dirs: `--t2t_usr_dir`, absolute paths; hints, see `code.py`.
      train_steps: last requested step to end at; 0 if unknown.
      declaration: declaration of the problem of a run that an earlier version imported.
      kind: registered name of the kind of run, if it is neither "problem" nor "trial".
      decode_hparams: decoding settings of the run, in the syntax of `--decode_hparams`; "" for the
        defaults.
      version: version of t2t_torch.
    """

    problem: str = ""
    model: str = ""
    hparams_set: str = ""
    trial: str = ""
    usr_dirs: tuple[str, ...] = ()
    train_steps: int = 0
    declaration: dict[str, Any] = {}
    decode_hparams: str = ""
    version: str = ""
    kind: str = ""

    @property
    def kind_name(self) -> str:
        """Name of the kind of run: "problem", "trial", or that of a kind that a user registered."""
        return self.kind or ("trial" if self.trial else "problem")

    @property
    def text(self) -> str:
        """Content of the file; `kind` is left out where it follows from the other fields."""
        left_out = None if self.kind else {"kind"}
        folders = tuple(remote.url_of(folder) or folder for folder in self.usr_dirs)
        record = self.model_copy(update={"usr_dirs": folders})
        return record.model_dump_json(indent=2, exclude=left_out) + "\n"


class RunDirectory:
    """The files of one run, except those inside of checkpoints.

    Attributes:
      changes: "setting: old -> new" of each setting that the command has changed, but the steps.

    Args:
      path: the directory; may not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._task_file = self.path / "task.json"
        self._hparams_file = self.path / "hparams.json"
        self._end_file = self.path / "ended.json"
        self.changes: list[str] = []
        self._lock: contextlib.ExitStack | None = None
        self._pending: list[Callable[[], None]] = []
        self._texts: dict[str, str] = {}
        self._copies: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """True if the directory contains a run."""
        return self._task_file.exists()

    def task(self) -> TaskRecord:
        """Reads `task.json`.

        Raises:
          CheckpointError: the file is missing or invalid.
        """
        text = self._read(self._task_file)
        try:
            record = TaskRecord.model_validate_json(text)
            folders = tuple(
                str(remote.resolve(one)) if remote.is_url(one) else one for one in record.usr_dirs
            )
            return record.model_copy(update={"usr_dirs": folders})
        except pydantic.ValidationError as error:
            raise CheckpointError(
                f"{self._task_file} is damaged: {error}. {self._restoring(self._task_file)}"
            ) from error

    @property
    def decode_hparams(self) -> str:
        """Decoding settings of the run; "" also if `task.json` is damaged, which `task` reports."""
        try:
            return self.task().decode_hparams
        except CheckpointError:
            return ""

    def hparams(self, kind: type[HParamsT]) -> HParamsT:
        """Reads `hparams.json`.

        Args:
          kind: the class that the model needs, `model.HParams`.

        Returns:
          An instance of `kind`, or of the subclass of the hparams set that was trained with.

        Raises:
          CheckpointError: the file is missing, or does not fit the class.
        """
        text = self._read(self._hparams_file)
        try:
            # A run in Python does not record the name of its set.
            return registry.hparams_class(kind, text, [self.task().hparams_set]).from_json(text)
        except HParamsError as error:
            raise CheckpointError(
                f"{self._hparams_file} does not fit {kind.__name__}: {error} "
                f"{self._restoring(self._hparams_file)}"
            ) from error

    @property
    def has_checkpoints(self) -> bool:
        """True if there are checkpoints, complete, corrupt or set aside, but not if unfinished."""
        return bool(checkpoint_folders(self.path) or folders_set_aside(self.path))

    def _restoring(self, file: Path) -> str:
        remedy = how_to_restore(self.path, file.name)
        if not (self.exists or " cp " in remedy):
            remedy += (
                " If an Estimator made this run in Python, make the same Estimator again and call "
                "its begin(): it writes the file."
            )
        return remedy

    def _read(self, file: Path) -> str:
        try:
            return read_checked(self.path, file.name).decode()
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
        """Checks that the run in this directory has this problem and model.

        Raises:
          CheckpointError: it has others.
        """
        known = self.task()
        if known.kind_name != task.kind_name:
            name = known.problem or known.trial
            raise CheckpointError(
                f"'{self.path}' holds a run of {known.kind_name} '{name}'. Use another "
                f"--output_dir, or resume that run: t2t-trainer --output_dir={self.path}"
            )
        for what in ("problem", "model"):
            here, requested = getattr(known, what), getattr(task, what)
            if here != requested:
                raise CheckpointError(
                    f"'{self.path}' holds a run of {what} '{here}', not '{requested}'. "
                    f"Use another --output_dir, or --{what}={here} to resume that run."
                )

    def check_hparams(
        self, hparams: HParams, *, resume_data: str = "exact", trains: bool = True
    ) -> list[str]:
        """Returns "field: old -> new" for each changed hyperparameter.

        Args:
          hparams: requested hyperparameters.
          resume_data: see `changed_fields`.
          trains: True if training continues; False if the run is only read.

        Raises:
          CheckpointError: the run's checkpoints need other hparams.
        """
        before = self.hparams(type(hparams))
        return changed_fields(before, hparams, resume_data=resume_data, trains=trains)

    def begin(self, task: TaskRecord, hparams: HParams, *, resume_data: str = "exact") -> list[str]:
        """Initializes the run directory of a task: `claim`, then `commit`."""
        changes = self.claim(task, hparams, resume_data=resume_data)
        self.commit()
        return changes

    def claim(
        self, task: TaskRecord, hparams: HParams, *, config: str = "", resume_data: str = "exact"
    ) -> list[str]:
        """Checks that this is, or can become, the run directory of a task, and locks it.

        Does not change the files of a run: `commit` does, after all other checks.

        Args:
          task: the task to train.
          hparams: hyperparameters.
          config: contents of `config.json`; empty: the file is not written.
          resume_data: see `changed_fields`.

        Returns:
          "field: old -> new" of the hparams, and of `train_steps`, that a resumed run changes.

        Raises:
          CheckpointError: the directory belongs to another problem or model, its run cannot
            continue with these hparams, another training runs here, or it is not writable.
        """
        texts = {self._hparams_file.name: hparams.to_json()}
        self.claim_files(task, texts | ({"config.json": config} if config else {}))
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
        self.changes = [one for one in changes if not one.startswith("train_steps:")]
        if config:
            self.changes += self._changed_flags(json.loads(config))
        return changes

    def _changed_flags(self, config: Mapping[str, Any]) -> Iterator[str]:
        """Yields "flag: old -> new" of the settings in `config.json` that are no hparams."""
        try:
            before = read_json(self.path / "config.json")
        except (OSError, ValueError):
            return
        for name, value in config.items():
            known = before.get(name, value)
            if name not in _OF_THE_PLACE and known != value:
                yield f"{name}: {known} -> {value}"

    def claim_files(self, task: TaskRecord, files: Mapping[str, str]) -> None:
        """Locks this for a task with its own settings files; `commit` writes them.

        Args:
          task: the task to train.
          files: file contents by name.

        Raises:
          CheckpointError: the directory belongs to another kind of run, another training runs
            here, or it is not writable.
        """
        if self.exists or self.has_checkpoints:
            self.check_is_of(task)
        self.lock()
        self._pend(task, files)

    def _pend(self, task: TaskRecord, texts: Mapping[str, str]) -> None:
        # task.json last: it marks a folder as a run, which must be complete then.
        self._texts = {**texts, self._task_file.name: task.text}
        self._pending, self._copies = [], {}

    def claim_for(
        self, task: TaskRecord, hparams: HParams, *, vocabularies: Iterable[str], vocab_dir: Path
    ) -> bool:
        """Prepares the files of a run that no command has claimed, as in Python, for `commit`.

        Does nothing and returns False if they exist or were claimed.
        """
        if self.exists or self._texts:
            return False
        self._pend(task, {self._hparams_file.name: hparams.to_json()})
        self.claim_vocabularies(vocabularies, vocab_dir)
        return True

    def keep(self, copies: Mapping[str, bytes]) -> list[str]:
        """Lets `commit` write copies of code and declarations, in place of those that are there.

        Args:
          copies: contents by path below the run directory; folders without any stay as they are.

        Returns:
          "path: changed" for each present copy with another content.
        """
        self._copies = dict(copies)
        present = [name for name in copies if (self.path / name).is_file()]
        return [
            f"{name}: changed" for name in present if read_bytes(self.path / name) != copies[name]
        ]

    def commit(self) -> None:
        """Writes the files checked by `claim`, `claim_vocabularies` and `keep`, once."""
        pending, self._pending = self._pending, []
        texts, self._texts = self._texts, {}
        copies, self._copies = self._copies, {}
        for write in pending:
            write()
        if not texts:
            return
        contents = {**copies, **{name: text.encode() for name, text in texts.items()}}
        folders = sorted({f"{name.split('/')[0]}/" for name in copies})
        with renewed(self.path, contents, folders=folders):
            for name, content in contents.items():
                file = self.path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_if_other(file, content)  # to write takes milliseconds, as it is synced
            remote.discard(self._end_file)
        for folder in folders:  # of code that is no longer there
            for file in [one for one in (self.path / folder).rglob("*") if one.is_file()]:
                if file.relative_to(self.path).as_posix() not in contents:
                    remote.discard(file)

    def note_end(self, step: int) -> None:
        """Records the end of training for processes that wait for checkpoints."""
        content = {"step": step, "sha256": hashlib.sha256(str(step).encode()).hexdigest()}
        write_text(self._end_file, json.dumps(content) + "\n")

    def ended_at(self) -> int | None:
        """Returns the step at which training ended; None if it may continue."""
        try:
            content = read_json(self._end_file)
            step = int(content["step"])
            digest = hashlib.sha256(str(step).encode()).hexdigest()
            return step if content.get("sha256", digest) == digest else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def claim_vocabularies(self, files: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Runs the checks of `copy_vocabularies`; `commit` copies the files."""
        names = list(files)
        self.check_vocabularies(names, data_dir)
        self._pending.append(functools.partial(self.copy_vocabularies, names, data_dir))

    def copy_vocabularies(self, files: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Copies vocabularies to the run directory, which is then sufficient for decoding.

        Args:
          files: names relative to `data_dir`.
          data_dir: directory of the generated data.

        Raises:
          CheckpointError: an existing copy differs: the data was regenerated since.
        """
        names = list(files)
        self.check_vocabularies(names, data_dir)
        for name in names:
            source, copy = Path(data_dir) / name, self.path / name
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                with staged(copy) as file:
                    copy_regular(source, file)

    def check_vocabularies(self, names: Iterable[str], data_dir: str | os.PathLike[str]) -> None:
        """Checks that the run's vocabularies are those of the data.

        Args:
          names: file names relative to `data_dir`; files that the run does not have are skipped.
          data_dir: directory of the generated data.

        Raises:
          CheckpointError: a vocabulary differs: the data was regenerated since.
        """
        for name in names:
            source, copy = Path(data_dir) / name, self.path / name
            if copy.exists() and read_bytes(copy) != read_bytes(source):
                raise CheckpointError(
                    f"the vocabulary {source} differs from {copy}, with which this run started: "
                    "its ids mean other words now. Train in another --output_dir, or point "
                    "--data_dir to the data that this run began with."
                )

    def lock(self) -> None:
        """Reserves training here for this process, until it ends or calls `unlock`.

        Raises:
          CheckpointError: another training runs here, or the folder is not writable.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError("it is not writable")
            lock = contextlib.ExitStack()
            lock.enter_context(training_lock(self.path / "train.lock"))
            self._lock = lock
            # Leftovers of crashes; only the owner of the lock deletes them.
            for path in (*self.path.glob(f".*{STAGED_SUFFIX}"), *unfinished_folders(self.path)):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        except OSError as error:
            self.unlock()
            raise CheckpointError(
                f"--output_dir={self.path} cannot be made or written to: "
                f"{error.strerror or error}. Give a folder that you may write to."
            ) from error

    def unlock(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
