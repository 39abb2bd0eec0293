"""`download_data`, called once on a machine, however many processes train on it.

The first process of a machine calls it under a lock that all jobs of the same trial and data on the
machine share, and writes what came of it to a file that the others wait for: the directory, or the
traceback.  It holds a second lock meanwhile, so that the others see if it died.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from t2t_torch.data.lock import exclusive
from t2t_torch.errors import TrialError
from t2t_torch.trial.calling import call
from t2t_torch.trial.context import TrialContext
from t2t_torch.trial.definition import Definition
from t2t_torch.trial.invalid_hp import InvalidHP
from t2t_torch.trial.source import users_traceback

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World

_LOOK_SECONDS = 0.05  # between two looks at what has come of it
_KEPT_SECONDS = 86400.0  # files of starts that are over; the longest wait for one is shorter

_BEGUN, _DONE, _FAILED, _INVALID = "begun", "done", "failed", "invalid hyperparameters"


def download_once(
    definition: Definition,
    context: TrialContext,
    *,
    timeout_s: float,
    local_rank: int,
    attempt_id: str,
) -> Path | None:
    """Returns the directory of the data, for which one process of this machine calls the trial.

    All processes of the machine must call this.  A job that is started anew calls the trial anew.

    Args:
      definition: the trial.
      context: its configuration and hyperparameters.
      timeout_s: how long the other processes wait.
      local_rank: of this process on this machine; 0 calls the trial.
      attempt_id: the same in all processes of this start, and in those of no other: `this_start`.

    Returns:
      What `download_data` returned, absolute; None of a trial without it.

    Raises:
      TrialError: in all processes: it raised (with the user's traceback), it returned no existing
        directory, its process died, or it took longer than `timeout_s`.
      InvalidHP: in all processes: it raised that.
    """
    if definition.download_data is None:
        return None
    files = _Files.of(definition, context, attempt_id)
    if local_rank == 0:
        return _download(definition, context, files)
    return _wait(definition, files, timeout_s)


def this_start(world: World) -> str:
    """Returns a name of this start of the job, the same in all its processes; all must ask."""
    return str(world.from_leader(time.time_ns()))


@dataclasses.dataclass(frozen=True)
class _Files:
    """Where processes of a machine meet.

    Attributes:
      lock: held while `download_data` runs; one for all jobs of the trial and its data.
      alive: held by the process that calls it, from before `news` is there.
      news: what has come of it.
    """

    lock: Path
    alive: Path
    news: Path

    @classmethod
    def of(cls, definition: Definition, context: TrialContext, attempt_id: str) -> _Files:
        data = json.dumps(context.experiment_config.get("data"), sort_keys=True, default=str)
        subject = _hash(f"{definition.path.resolve()}\n{definition.trial_class.__name__}\n{data}")
        folder = _own_folder()
        start = f"{subject}-{_hash(attempt_id)}"
        return cls(folder / f"{subject}.lock", folder / f"{start}.alive", folder / f"{start}.json")

    def tell(self, state: str, text: str = "") -> None:
        """Writes the news, whole at once."""
        beside = self.news.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps({"state": state, "text": text}), "utf-8")
        beside.replace(self.news)

    def told(self) -> tuple[str, str]:
        """Returns the state and its text; both empty before there is one."""
        try:
            news = json.loads(self.news.read_text("utf-8"))
        except FileNotFoundError:
            return "", ""
        return news["state"], news["text"]

    def is_deserted(self) -> bool:
        """Whether the process that calls `download_data` holds its lock no more."""
        with self.alive.open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @contextlib.contextmanager
    def living(self) -> Iterator[None]:
        """Holds the lock that says that this process lives."""
        with self.alive.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def clear(self) -> None:
        """Removes what starts that are long over have left."""
        oldest = time.time() - _KEPT_SECONDS
        for path in self.lock.parent.glob(f"{self.lock.stem}-*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _download(definition: Definition, context: TrialContext, files: _Files) -> Path:
    """Calls the trial, and tells the other processes what came of it."""
    with files.living():
        files.tell(_BEGUN)
        try:
            with exclusive(files.lock, f"downloading the data of {definition.spec}"):
                files.clear()
                path = _called(definition, context)
        except InvalidHP as error:
            files.tell(_INVALID, str(error))
            raise
        except TrialError as error:
            files.tell(_FAILED, str(error))
            raise
        except BaseException as error:  # also what ends the process: nobody shall wait for it
            told = f"download_data of {definition.spec} failed:\n{users_traceback(error)}"
            files.tell(_FAILED, told)
            if isinstance(error, Exception):
                raise TrialError(told) from error
            raise
        files.tell(_DONE, str(path))
        return path


def _called(definition: Definition, context: TrialContext) -> Path:
    """Returns the directory that `download_data` names.

    Raises:
      TrialError: it names none.
    """
    given = copy.deepcopy([context.experiment_config, context.hparams])
    function = definition.download_data
    assert function is not None
    result: Any = call(function, *given, what="download_data")
    if not isinstance(result, str):
        forgot = " Is a return missing?" if result is None else ""
        raise TrialError(
            f"download_data of {definition.spec} returned {result!r}; a directory, as a string, "
            f"was expected.{forgot}"
        )
    path = Path(result).absolute()
    if not path.is_dir():
        raise TrialError(
            f"download_data of {definition.spec} returned {result!r}, but {path} is no directory. "
            "Return the directory that the data were put in."
        )
    return path


def _wait(definition: Definition, files: _Files, timeout_s: float) -> Path:
    """Waits for what comes of the first process's call."""
    deadline = time.monotonic() + timeout_s
    said = False
    while True:
        state, text = files.told()
        if state == _BEGUN and files.is_deserted():
            state, text = files.told()  # it may have told and ended between the two
            if state == _BEGUN:
                raise TrialError(
                    f"The process that called download_data of {definition.spec} died. Its own "
                    "output says why; start again."
                )
        if state == _DONE:
            return Path(text)
        if state == _INVALID:
            raise InvalidHP(text)
        if state == _FAILED:
            raise TrialError(text)
        if time.monotonic() > deadline:
            raise TrialError(
                f"download_data of {definition.spec} took more than {timeout_s:g} seconds. Wait "
                "longer with --download_timeout=SECONDS, or fetch the data beforehand."
            )
        if not said:
            said = True
            logging.info("Waiting for download_data, which another process of this machine calls.")
        time.sleep(_LOOK_SECONDS)


def _own_folder() -> Path:
    """Returns a directory of this user's, on this machine.

    Raises:
      TrialError: its name is taken by somebody else.
    """
    folder = Path(tempfile.gettempdir()) / f"t2t_torch-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise TrialError(f"{folder} belongs to somebody else. Set TMPDIR to a directory of yours.")
    return folder


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
