"""`metrics.jsonl`: what a run has reported, one line for each step and split."""

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

from t2t_torch.data.staging import staged

NAME = "metrics.jsonl"


class MetricsFile:
    """The reports of a run, each step and split once, whatever was killed when.

    Processes may share it: one that trains, one that evaluates.

    Args:
      directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._seen: set[tuple[int, str]] = set()
        self._file_seen = (0, 0)  # which file `_seen` is of, and how far

    def add(self, split: str, step: int, values: Mapping[str, float | list[Any]]) -> None:
        """Adds a report; one of the same step and split that is there already gives way.

        Args:
          split: "train", or the name of what was evaluated.
          step: optimizer steps done.
          values: by name, numbers or nested lists of them; JSON has no NaN, so what is not finite
            becomes null.
        """
        numbers = {name: _finite(value) for name, value in values.items()}
        report = {"step": step, "split": split, "time": round(time.time(), 3), **numbers}
        with self._locked() as file:
            if self._holds(file, split, step):
                self._keep(lambda old: (old["step"], old["split"]) != (step, split), report)
                return
            torn = _is_torn(file)  # by a disk that was full, or a kill
            file.write((b"\n" if torn else b"") + _line(report))  # one write

    def trim(self, step: int) -> None:
        """Drops what lies beyond a step, and lines that are not whole; once or not at all."""
        if not self.path.exists():
            return
        with self._locked() as file:
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            reports = [_report(line) for line in lines]
            if any(one is None or one["step"] > step for one in reports) or _is_torn(file):
                self._keep(lambda report: bool(report["step"] <= step))

    def read(self) -> list[dict[str, Any]]:
        """Returns the reports in the order in which they came; a line that is not whole is none."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [report for line in lines if (report := _report(line)) is not None]

    def _holds(self, file: BinaryIO, split: str, step: int) -> bool:
        """Whether there is a report of a step and split; reads what has come since it last did."""
        inode, end = self._file_seen
        if inode != os.fstat(file.fileno()).st_ino:
            inode, end = os.fstat(file.fileno()).st_ino, 0
            self._seen.clear()
        file.seek(end)
        new = file.read()
        reports = map(_report, new.splitlines())
        self._seen.update((one["step"], one["split"]) for one in reports if one is not None)
        # A last line without an end is read again when it is whole.
        self._file_seen = inode, end + new.rfind(b"\n") + 1
        return (step, split) in self._seen

    def _keep(self, wanted: Callable[[dict[str, Any]], bool], *more: Mapping[str, Any]) -> None:
        """Replaces the file by one of the reports that are wanted, and more.

        The lock is held, which is that of the old file: nothing is written to the new one after it
        has its name.
        """
        kept = [_line(report) for report in (*filter(wanted, self.read()), *more)]
        with staged(self.path) as temporary:
            temporary.write_bytes(b"".join(kept))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Yields the file, which no other process changes meanwhile."""
        while True:
            with self.path.open("a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    is_current = os.path.samestat(os.fstat(file.fileno()), self.path.stat())
                except FileNotFoundError:
                    is_current = False
                if is_current:  # else it was replaced while this process waited
                    yield file
                    return


def _line(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report).encode() + b"\n"


def _report(line: bytes) -> dict[str, Any] | None:
    """Returns what a line says; None unless it is a whole report."""
    try:
        report = json.loads(line)
    except ValueError:
        return None
    if not isinstance(report, dict) or not isinstance(report.get("step"), int):
        return None
    return report if isinstance(report.get("split"), str) else None


def _is_torn(file: BinaryIO) -> bool:
    """Whether the last line of a file has no end."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


def _finite(value: float | list[Any]) -> float | list[Any] | None:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if math.isfinite(value) else None
