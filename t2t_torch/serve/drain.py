"""The end of a server: what was begun is answered, and nothing new is taken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from t2t_torch.serve.log import tell

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TICK = 0.02  # seconds


class Drain:
    """How far the end is.

    Args:
      delay: seconds that requests are still taken after the first signal, while the server says
        that it is not ready; so what sends them can look elsewhere.
      seconds: that requests which were begun have, after that.

    Attributes:
      in_flight: requests that were begun and are not answered.
      is_ready: whether the server says that it takes requests.
      refuses: whether it refuses them.
      was_cut: whether some were not answered in time.
    """

    def __init__(self, delay: float = 0.0, seconds: float = 30.0) -> None:
        self.delay = delay
        self.seconds = seconds
        self.in_flight = 0
        self.is_ready = True
        self.refuses = False
        self.was_cut = False
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def on_signals(self, end: Callable[[], None]) -> Iterator[None]:
        """Lets the first SIGTERM or Ctrl-C begin the end, and a second one end the process.

        Args:
          end: called in the running loop when all is answered.
        """
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not self.is_ready:
                os._exit(128 + number)
            self.is_ready = False
            loop.call_soon_threadsafe(begin, number)

        def begin(number: int) -> None:
            tell("draining", signal=signal.Signals(number).name, in_flight=self.in_flight)
            self._task = loop.create_task(self._wait(end))

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _wait(self, end: Callable[[], None]) -> None:
        await asyncio.sleep(self.delay)
        self.refuses = True
        loop = asyncio.get_running_loop()
        last = loop.time() + self.seconds
        while self.in_flight and loop.time() < last:
            await asyncio.sleep(_TICK)
        if self.in_flight:
            self.was_cut = True
            tell("cut off", 30, in_flight=self.in_flight, seconds=self.seconds)
        end()
