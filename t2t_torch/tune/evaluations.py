"""What a training has evaluated, read from its run directory."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.summary.metrics_file import MetricsFile
from t2t_torch.train.stopping import full_name, short_names

_BESIDE = ("step", "split", "time")


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


def read_evaluations(directory: Path, metric: str) -> Evaluations:
    """Reads what a run has reported.

    Args:
      directory: of the run; it need not have begun.
      metric: as evaluations print it ("loss") or as summaries name it.

    Raises:
      UsageError: evaluations have no such metric.
    """
    reports = MetricsFile(directory).read()
    curve: dict[int, float | None] = {}
    for report in reports:
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
    step = max((report["step"] for report in reports), default=0)
    return Evaluations(step, tuple(sorted(curve.items())))


def _meant(metric: str, names: list[str]) -> str:
    try:
        return full_name(metric, names)
    except UsageError:
        known = ", ".join(sorted(short_names(names).values()))
        raise UsageError(
            f"--metric={metric}: evaluations have no such metric. They have: {known}."
        ) from None
