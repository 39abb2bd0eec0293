"""What a user sees while many inputs are decoded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm

_SECONDS = 30.0
"""From one line to the next, where there is no terminal that a bar could be shown on."""


class DecodeProgress:
    """A bar on a terminal, else a line every half minute: how many are done, the rate, the rest.

    A context manager.  Left by an exception (a signal, too) it says that what was done is lost:
    outputs are written when all are there, in the order of the inputs, which is not that in which
    they are decoded.

    Args:
      total: inputs.
      clock: returns seconds.
    """

    def __init__(self, total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._done = 0
        self._started = self._told = clock()
        self._bar: tqdm[object] | None = None

    def __enter__(self) -> DecodeProgress:
        if sys.stderr.isatty():
            self._bar = tqdm(total=self._total, unit=" inputs", desc="decode", dynamic_ncols=True)
        return self

    def advance(self) -> None:
        """Shows that one more is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
            return
        now = self._clock()
        if now - self._told < _SECONDS or self._done == self._total:
            return
        self._told = now
        rate = self._done / (now - self._started)
        left = tqdm.format_interval((self._total - self._done) / rate)
        _say(f"decoded {self._done:,} of {self._total:,} inputs  {rate:,.1f}/s  {left} left")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is not None:
            done = f"{self._done:,} of {self._total:,} inputs"
            _say(f"decoding ended after {done}: nothing of it is written")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
