"""`metrics.jsonl`: the reports of a run, one line for each step and split."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from t2t_torch.atomic_files import staged
from t2t_torch.files import MAX_CONTENT, is_open_as, open_regular

NAME = "metrics.jsonl"


class MetricsFile:
    """The reports of a run, each step and split once, even after interruptions at any time.

    Processes may share the file: one that trains, one that evaluates.

    Args:
      directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._seen: set[tuple[int, str]] = set()
        self._file_seen = (0, 0)  # file that `_seen` describes, and position in it

    def add(self, split: str, step: int, values: Mapping[str, float | list[Any]]) -> None:
        """Adds a report; it replaces an existing one of the same step and split.

        Args:
          split: "train", or the name of the evaluated split.
          step: completed optimizer steps.
          values: numbers or nested lists of them, by name; values that are not finite are written
            as null, because JSON has no NaN.
        """
        numbers = {name: _finite(value) for name, value in values.items()}
        report = {"step": step, "split": split, "time": round(time.time(), 3), **numbers}
        with locked(self.path) as file:
            if self._holds(file, split, step):
                self._keep(lambda old: (old["step"], old["split"]) != (step, split), report)
                return
            # One write, after a line that a full disk or a kill left incomplete.
            file.write((b"\n" if is_torn(file) else b"") + _line(report))

    def trim(self, step: int) -> None:
        """Removes reports beyond a step, and incomplete lines, atomically."""
        if not self.path.exists():
            return
        with locked(self.path) as file:
            file.seek(0)
            reports = [_report(line) for line in file.read().splitlines(keepends=True)]
            if any(one is None or one["step"] > step for one in reports) or is_torn(file):
                self._keep(lambda report: bool(report["step"] <= step))

    def read(self) -> list[dict[str, Any]]:
        """Returns the reports in the order of writing; incomplete lines are skipped."""
        return [one for one in read_records(self.path) if isinstance(one.get("split"), str)]

    def _holds(self, file: BinaryIO, split: str, step: int) -> bool:
        """Returns True if there is a report of a step and split; reads only new lines."""
        inode, end = self._file_seen
        if inode != os.fstat(file.fileno()).st_ino:
            inode, end = os.fstat(file.fileno()).st_ino, 0
            self._seen.clear()
        file.seek(end)
        new = file.read()
        reports = map(_report, new.splitlines())
        self._seen.update((one["step"], one["split"]) for one in reports if one is not None)
        # An incomplete last line is read again when it is complete.
        self._file_seen = inode, end + new.rfind(b"\n") + 1
        return (step, split) in self._seen

    def _keep(self, wanted: Callable[[dict[str, Any]], bool], *more: Mapping[str, Any]) -> None:
        """Replaces the file by one of the wanted reports, and more.

        Requires the lock of the old file: nothing is written to the new one after it has its name.
        """
        lines = [_line(report) for report in (*filter(wanted, self.read()), *more)]
        with staged(self.path) as temporary:
            temporary.write_bytes(b"".join(lines))


@contextlib.contextmanager
def locked(path: Path, *, waits: bool = True) -> Iterator[BinaryIO]:
    """Opens a file to read and append, created if missing, under an exclusive lock.

    Raises:
      BlockingIOError: another process holds the lock, and `waits` is False.
    """
    while True:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            if is_open_as(path, file.fileno()):  # the holder before did not replace or delete it
                yield file
                return


def _line(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report).encode() + b"\n"


def read_records(path: Path, *, max_bytes: int | None = MAX_CONTENT) -> list[dict[str, Any]]:
    """Returns the JSON objects with a step in the lines of a file, which need not be there.

    Incomplete lines are skipped.
    """
    absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with absent, open_regular(path, max_bytes=max_bytes) as file:
        return [record for line in file if (record := _record_of(line)) is not None]
    return []


def _record_of(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object with a step in a line; None if it is incomplete."""
    try:
        report = json.loads(line)
    except ValueError:  # after a full disk
        return None
    is_report = isinstance(report, dict) and isinstance(report.get("step"), int)
    return report if is_report else None


def _report(line: bytes) -> dict[str, Any] | None:
    """Returns the report of a split in a line; None if it is incomplete."""
    report = _record_of(line)
    return report if report and isinstance(report.get("split"), str) else None


def is_torn(file: BinaryIO) -> bool:
    """Returns True if the last line of a file is incomplete."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


def _finite(value: float | list[Any]) -> float | list[Any] | None:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if math.isfinite(value) else None
