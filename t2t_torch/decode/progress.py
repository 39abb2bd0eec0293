"""What a user sees while many inputs are decoded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tqdm import tqdm

_SECONDS = 30.0
"""From one line to the next, where there is no terminal that a bar could be shown on."""


class DecodeProgress:
    """A bar on a terminal, else a line every half minute: how many are done, the rate, the rest.

    A context manager.  Left by an exception (a signal, too) it says what becomes of what was done:
    outputs are written when all are there, in the order of the inputs, which is not that in which
    they are decoded; a journal keeps them till then.

    Args:
      total: inputs.
      before: so many of them were decoded before.
      journal: the file that keeps what was found; None if there is none.
      clock: returns seconds.
    """

    def __init__(
        self,
        total: int,
        *,
        before: int = 0,
        journal: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._before = before
        self._journal = journal
        self._clock = clock
        self._done = before
        self._started = self._told = clock()
        self._bar: tqdm[object] | None = None

    def __enter__(self) -> DecodeProgress:
        if self._before:
            where = f" in {self._journal}" if self._journal is not None else ""
            _say(f"{self._before:,} of {self._total:,} inputs were there{where}")
        if sys.stderr.isatty():
            self._bar = tqdm(
                total=self._total,
                initial=self._before,
                unit=" inputs",
                desc="decode",
                dynamic_ncols=True,
            )
        return self

    def advance(self, count: int = 1) -> None:
        """Shows that more are done."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = self._clock()
        if now - self._told < _SECONDS or self._done == self._total:
            return
        self._told = now
        rate = (self._done - self._before) / (now - self._started)
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
            kept = "nothing of it is written"
            if self._journal is not None and self._done:
                kept = f"{self._journal} keeps them, and the same command goes on there"
            _say(f"decoding ended after {done}: {kept}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
