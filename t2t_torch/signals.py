"""Signals: the first one requests a graceful stop, the second one ends the process.

Commands handle signals, and pass workflows a `StopRequest`.  The first signal ends the process as
long as there is nothing to save.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Self

_END = b"\0"  # no signal has this number

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """Request to save and stop; true once it was made.

    A workflow enters it as a context manager when there is something to save, and its loops poll it
    between batches.

    Attributes:
      signal: number of the signal that requested it, 0 if there was none.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __bool__(self) -> bool:
        return self.signal != 0

    def request(self, number: int = signal.SIGTERM) -> None:
        """Requests to stop, as a signal does; may be called in another thread."""
        self.signal = number

    def as_exception(self) -> contextlib.AbstractContextManager[None]:
        """Context in which a request ends the computation by an exception, as nothing polls it."""
        return contextlib.nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SignalStop(StopRequest):
    """Stop request by SIGTERM, SIGINT or SIGUSR1.

    Entered, it installs handlers, and restores the previous ones at the end; outside the main
    thread, where Python allows no handlers, it does nothing.  The first signal requests the stop, a
    second one has the system's default effect.

    Args:
      action: the command's reaction to the first signal, for the message.
      early: handling of signals that ends when this one begins.
    """

    def __init__(
        self,
        action: str = "stopping after this batch; a second signal stops at once",
        early: EarlyExit | None = None,
    ) -> None:
        super().__init__()
        self._action, self._early = action, early
        self._previous: dict[int, object] = {}

    def as_exception(self) -> contextlib.AbstractContextManager[None]:
        """Context in which a signal becomes an exception; see `ending_on_signals`."""
        if self._early is not None:
            self._early.end()
        return ending_on_signals()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        # First restore: a signal that arrives in between would be lost with its handler.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        name = signal.Signals(number).name
        # Not print: the interrupted code may be using its buffer.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: {self._action}\n".encode())

    def __enter__(self) -> Self:
        if self._early is not None:
            self._early.end()
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._previous)


def _restore(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


class EarlyExit:
    """Ends the process at a signal during startup, such as the import of torch.

    A thread does this when CPython writes the signal to a pipe: the main thread may be in C++ code,
    where Python's handlers do not run.

    A forked process, such as a loader's worker, inherits the pipe and may live longer.  Therefore a
    byte ends the thread, not the pipe's end, and the forked process has its own signals.

    Args:
      code: exit code; 0: 128 + the signal's number.
    """

    _active: EarlyExit | None = None
    _forks_are_watched = False

    def __init__(self, code: int = 0) -> None:
        self._code = code
        self._previous: dict[int, object] = {}

    def end(self) -> None:
        """Restores the previous signal handlers; a second call does nothing."""
        if not self._previous:
            return
        _restore(self._previous)
        self._previous = {}
        EarlyExit._active = None
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write, _END)
        self._thread.join()
        os.close(self._write)
        os.close(self._read)

    @classmethod
    def _forget(cls) -> None:
        """Restores the handlers in a forked process, whose signals must not end its parent."""
        if cls._active is not None:
            signal.set_wakeup_fd(cls._active._wakeup_before)
            _restore(cls._active._previous)
            cls._active._previous = {}
            cls._active = None

    def _watch(self) -> None:
        while (received := os.read(self._read, 1)) != _END:
            if (number := received[0]) in SIGNALS:
                name = signal.Signals(number).name
                with contextlib.suppress(OSError):
                    os.write(
                        2,
                        f"\n{name}: training had not started; there is nothing to save\n".encode(),
                    )
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
        for number in SIGNALS:  # any Python handler makes CPython write to the pipe
            self._previous[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Turns signals into exceptions, which remove incomplete outputs.

    Also within `t2t-trainer`, whose own handlers would let the computation finish.  Code that
    catches every exception, as in the import and the export of a graph, may swallow one: it is
    raised again after each second of computation, and at the end.  While one is handled, as by the
    code that removes incomplete outputs, none is raised for the time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def end(signum: int, frame: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
        if signum != signal.SIGVTALRM:
            received.append(signum)
            raise_if_stopped(signum)
        handled = sys.exc_info()[1]
        while handled and not isinstance(handled, KeyboardInterrupt | SystemExit):
            handled = handled.__context__
        if not handled:
            raise_if_stopped(received[0])

    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGVTALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN:  # a shell's background job ignores Ctrl-C
            signal.signal(number, end)
    try:
        yield
    except Exception:  # of code that the signal has interrupted
        if not received:
            raise
    finally:
        if received:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)
    if received:
        raise_if_stopped(received[0])


def raise_if_stopped(number: int) -> None:
    """Raises KeyboardInterrupt after SIGINT, and SystemExit after another signal."""
    if number:
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
