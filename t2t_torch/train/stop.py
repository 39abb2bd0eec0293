"""A polite stop: the first signal asks, the second one ends the process.

Before there is anything to save, the first one ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType

_END = b"\0"  # no signal has this number

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """Whether SIGTERM, SIGINT or SIGUSR1 has asked this process to save and stop.

    As a context manager it listens; outside, signals do what they did before.  The handler only
    sets a flag, which the loops poll between batches; a second signal does what the system does by
    default.

    Attributes:
      signal: the number of the signal that asked, 0 if none did.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._previous: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self.signal != 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        # First this: one that came between would be dropped, as its handler is gone when it is run.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        name = signal.Signals(number).name
        # Not print: its buffer may be in use by what the signal has interrupted.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: stopping after this batch; again to stop at once\n".encode())

    def __enter__(self) -> StopRequest:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


class EarlyExit:
    """Ends the process at a signal while nothing has begun: torch is imported, others are awaited.

    A thread does it, told by what CPython writes to a pipe: it may be that the main thread sits in
    C++, where handlers of Python's do not run.

    A process that is forked meanwhile, such as a worker of a loader, inherits the pipe and may live
    longer: a byte ends the thread, not the pipe's end, and signals of that process are its own.

    Args:
      code: exit code; 0: 128 + the signal's number.
    """

    _active: EarlyExit | None = None
    _forks_are_watched = False

    def __init__(self, code: int = 0) -> None:
        self._code = code
        self._previous: dict[int, object] = {}

    def gives_way_to(self, stop: StopRequest) -> StopRequest:
        """Ends this, and returns what listens from now on."""
        self.end()
        return stop

    def end(self) -> None:
        """Lets signals do what they did before; does nothing the second time."""
        if not self._previous:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous = {}
        EarlyExit._active = None
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write, _END)
        self._thread.join()
        os.close(self._write)
        os.close(self._read)

    @classmethod
    def _forget(cls) -> None:
        """Gives a forked process signals as they were: its own do not end the one it is from."""
        if cls._active is not None:
            signal.set_wakeup_fd(cls._active._wakeup_before)
            for number, handler in cls._active._previous.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            cls._active._previous = {}
            cls._active = None

    def _watch(self) -> None:
        while (told := os.read(self._read, 1)) != _END:
            number = told[0]
            if number in SIGNALS:
                name = signal.Signals(number).name
                with contextlib.suppress(OSError):
                    os.write(2, f"\n{name}: nothing had begun, nothing is to be saved\n".encode())
                os._exit(self._code or 128 + number)

    def __enter__(self) -> EarlyExit:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if not EarlyExit._forks_are_watched:
            os.register_at_fork(after_in_child=EarlyExit._forget)
            EarlyExit._forks_are_watched = True
        EarlyExit._active = self
        self._thread = threading.Thread(target=self._watch, name="early-exit", daemon=True)
        self._thread.start()
        for number in SIGNALS:  # any handler of Python's makes CPython write to the pipe
            self._previous[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
