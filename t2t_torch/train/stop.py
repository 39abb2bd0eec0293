"""A polite stop: the first signal asks, the second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

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
        name = signal.Signals(number).name
        # Not print: its buffer may be in use by what the signal has interrupted.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: stopping after this batch; again to stop at once\n".encode())
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def __enter__(self) -> StopRequest:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
