"""One training of a search: a process of t2t-trainer, which pauses at a rung."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from t2t_torch.errors import EXIT_CODE, NOT_FINITE_CODE
from t2t_torch.tune.locked import is_locked

TRAINER = (sys.executable, "-m", "t2t_torch.bin.trainer")
"""The command that trains."""

LOG = "tuner.log"
"""In the run directory: what the trainings have printed, one after another."""

INVALID_HP_CODE = 3
"""Exit code of a training whose hyperparameters are invalid by its own word."""

_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT)
_LAST_BYTES = 4096
_MOST_TOLD = 500  # characters of an error

Ending = Literal["done", "refused", "invalid", "diverged", "stopped", "broken"]
"""done: at its rung; refused: an error of the user's; invalid: INVALID_HP; diverged: its loss is
not finite any more; stopped: by a signal that let it save; broken: killed, or by an error of its
code."""

_ENDINGS: dict[int, Ending] = {
    0: "done",
    EXIT_CODE: "refused",
    INVALID_HP_CODE: "invalid",
    NOT_FINITE_CODE: "diverged",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training's process has ended.

    Attributes:
      ending: see `Ending`.
      code: of the process; below 0 the signal that has killed it.
      why: its last words; empty if it is done.
    """

    ending: Ending
    code: int
    why: str


class Training:
    """A process that trains.

    Args:
      trial: its number.
      command: the whole of it.
      directory: the run directory.
      environment: what is added to this process's own.
    """

    def __init__(
        self, trial: int, command: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.trial = trial
        self.directory = directory
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._created = time.monotonic()
        self._began = 0.0
        self._asked = 0.0

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began if self._process is not None else 0.0

    @property
    def waits(self) -> str:
        """What it waits for before it can be started; empty if it runs."""
        if self._process is not None:
            return ""
        return f"for the process that trains in {self.directory} to end"

    def start(self) -> bool:
        """Starts it, unless a process of a tuner that was killed still saves there.

        Returns:
          Whether it runs.
        """
        if self._process is not None:
            return True
        self.directory.mkdir(parents=True, exist_ok=True)
        if is_locked(self.directory / "train.lock"):
            return False
        with (self.directory / LOG).open("ab") as log:
            log.write(f"$ {' '.join(self._command)}\n".encode())
            log.flush()
            # A session of its own: Ctrl-C is the tuner's alone, which then asks once.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
                preexec_fn=_follow_parent if _PRCTL is not None else None,
            )
        self._began = time.monotonic()
        return True

    def outcome(self) -> Outcome | None:
        """Returns how it has ended; None if it has not."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        ending = "stopped" if code in _STOPPED else _ENDINGS.get(code, "broken")
        return Outcome(ending, code, "" if code == 0 else _why(self.directory, code))

    def ask_to_stop(self) -> None:
        """Lets it save and end; the second call does nothing."""
        if self._process is not None and not self._asked:
            self._asked = time.monotonic()
            self._process.terminate()

    def kill(self) -> None:
        """Ends it at once; it will go on from its last checkpoint."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _load_prctl() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return library if hasattr(library, "prctl") else None
    except OSError:
        return None


_PRCTL = _load_prctl()
_PR_SET_PDEATHSIG = 1


def _follow_parent() -> None:
    """Lets the process that is being made save and end when the tuner is killed."""
    assert _PRCTL is not None
    _PRCTL.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _why(directory: Path, code: int) -> str:
    """Returns the last words of a training."""
    told = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    with (directory / LOG).open("rb") as log:
        log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        lines = log.read().decode(errors="replace").splitlines()
    begun = max((n for n, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    lines = [line.strip() for line in lines[begun + 1 :] if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    words = " ".join(lines[errors[-1] :]) if errors and code > 0 else "".join(lines[-1:])
    return f"{told}: {words[:_MOST_TOLD]}" if words else told
