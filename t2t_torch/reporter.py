"""Reporters of workflows: results, progress and warnings.

    with reporting(SILENT):
        train(settings)

Code below the commands calls `output` and `message`, which reach the reporter of the current
context, by default the console.  A thread that reports takes the context of its creator
(`contextvars.copy_context`).
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from t2t_torch.remote.place import with_urls

if TYPE_CHECKING:
    from tqdm import tqdm


class Reporter:
    """The console: results on standard output, everything else on standard error.

    Subclasses report elsewhere.
    """

    is_silent = False

    def output(self, text: str) -> None:
        """Reports results, as lines of text."""
        print(text, flush=True)

    def message(self, line: str) -> None:
        """Reports progress or a warning."""
        print(line, file=sys.stderr, flush=True)

    def bar(self, **options: Any) -> tqdm[object] | None:
        """Returns a progress bar; None if progress is reported by messages.

        Args:
          **options: arguments of `tqdm`.
        """
        if not sys.stderr.isatty():
            return None
        from tqdm import tqdm

        return tqdm(dynamic_ncols=True, **options)


class SilentReporter(Reporter):
    """Reports nothing."""

    is_silent = True

    def output(self, text: str) -> None:
        """Drops a result."""

    def message(self, line: str) -> None:
        """Drops a message."""

    def bar(self, **options: Any) -> None:
        """Returns no bar."""


class NotebookReporter(Reporter):
    """A notebook: progress bars of `tqdm.auto`, and everything else in the cell's output."""

    def message(self, line: str) -> None:
        """Prints a message."""
        print(line, flush=True)

    def bar(self, **options: Any) -> tqdm[object]:
        """Returns a bar of the notebook."""
        from tqdm.auto import tqdm as auto

        return auto(**options)


class JsonLinesReporter(Reporter):
    """JSON objects, one per line: {"time": seconds since 1970, "output" or "message": text}.

    Args:
      stream: where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def output(self, text: str) -> None:
        """Writes a result."""
        self._write("output", text)

    def message(self, line: str) -> None:
        """Writes a message."""
        self._write("message", line)

    def bar(self, **options: Any) -> None:
        """Returns no bar."""

    def _write(self, kind: str, text: str) -> None:
        line = json.dumps({"time": time.time(), kind: text}, ensure_ascii=False)
        self._stream.write(f"{line}\n")
        self._stream.flush()


CONSOLE = Reporter()
SILENT = SilentReporter()

_current: contextvars.ContextVar[Reporter] = contextvars.ContextVar("reporter", default=CONSOLE)


@contextlib.contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Context manager that makes a reporter the current one."""
    token = _current.set(reporter)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Reporter:
    """Returns the current reporter."""
    return _current.get()


def output(text: str = "") -> None:
    """Reports results to the current reporter."""
    _current.get().output(with_urls(text))


def message(line: str) -> None:
    """Reports progress or a warning to the current reporter."""
    _current.get().message(with_urls(line))


def bar(*, show: bool = True, **options: Any) -> tqdm[object]:
    """Returns a progress bar of the current reporter; a hidden one if it has none.

    Args:
      show: False for a hidden one.
      **options: arguments of `tqdm`.
    """
    from tqdm import tqdm

    made = current().bar(**options) if show else None
    return tqdm(disable=True) if made is None else made


_SILENCE = 8.0  # seconds


@contextlib.contextmanager
def phase(what: str) -> Iterator[None]:
    """Reports that a phase without output lasts, after eight seconds and ever more rarely.

    Args:
      what: name of the phase.
    """
    reporter, over, start = current(), threading.Event(), time.monotonic()
    if reporter.is_silent:
        yield
        return

    def report() -> None:
        wait = _SILENCE
        while not over.wait(wait):
            with contextlib.suppress(OSError, ValueError):  # the stream was closed
                reporter.message(f"{what}: {time.monotonic() - start:.0f} s so far")
            wait = min(2 * wait, 60.0)

    thread = threading.Thread(target=report, name="phase", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
