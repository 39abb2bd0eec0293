"""What a training has evaluated, read from its run directory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from t2t_torch.errors import UsageError
from t2t_torch.summary.metrics_file import MetricsFile
from t2t_torch.train.stopping import full_name, short_names

_BESIDE = ("step", "split", "time")
_Version: TypeAlias = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """One metric of a run.

    Attributes:
      step: of the newest report, of training or of an evaluation; 0 if there is none.
      curve: (step, value) of each evaluation, None where it is not finite.
    """

    step: int
    curve: tuple[tuple[int, float | None], ...]

    @property
    def newest(self) -> tuple[int, float | None] | None:
        """The last evaluation."""
        return self.curve[-1] if self.curve else None


_KNOWN: dict[tuple[Path, str], tuple[_Version, Evaluations]] = {}
"""What was read of each file: a table that is drawn each second shows many runs that are over."""


def read_evaluations(directory: Path, metric: str) -> Evaluations:
    """Reads what a run has reported; a file that has not changed is not read again.

    Args:
      directory: of the run; it need not have begun.
      metric: as evaluations print it ("loss") or as summaries name it.

    Raises:
      UsageError: evaluations have no such metric.
    """
    file = MetricsFile(directory)
    version = _version(file.path)
    known = _KNOWN.get((file.path, metric))
    if known is not None and known[0] == version:
        return known[1]
    found = _of_reports(file.read(), metric)
    if version is not None:
        _KNOWN[file.path, metric] = version, found
    return found


def _version(path: Path) -> _Version | None:
    """Returns what changes whenever a file does; None if it is not there."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


def _of_reports(reports: Iterable[Mapping[str, Any]], metric: str) -> Evaluations:
    step = 0
    curve: dict[int, float | None] = {}
    for report in reports:
        step = max(step, report["step"])
        if report["split"] == "train":
            continue
        names = [name for name in report if name not in _BESIDE]
        value = report[_meant(metric, names)]
        if isinstance(value, list):
            raise UsageError(
                f"--metric={metric} has several numbers in each evaluation; trials are ranked by "
                "one. Name another, or let the trial give its mean besides."
            )
        finite = isinstance(value, int | float) and math.isfinite(value)
        curve[report["step"]] = float(value) if finite else None
    return Evaluations(step, tuple(sorted(curve.items())))


def _meant(metric: str, names: list[str]) -> str:
    try:
        return full_name(metric, names)
    except UsageError:
        known = ", ".join(sorted(short_names(names).values()))
        raise UsageError(
            f"--metric={metric}: evaluations have no such metric. They have: {known}."
        ) from None
