"""How good each checkpoint was found to be (`best.json`)."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Collection
from pathlib import Path

import pydantic

from t2t_torch.checkpoint.disk import replace_file
from t2t_torch.errors import CheckpointError

FILE = "best.json"


class _Record(pydantic.BaseModel, extra="forbid"):
    """The content of the file: values of one metric by step, and their checksum.

    Files of earlier versions have no checksum, and are taken as they are.
    """

    metric: str = ""
    lower_is_better: bool
    values: dict[int, float]
    sha256: str | None = None

    @property
    def digest(self) -> str:
        """The sha256 of all other fields."""
        return hashlib.sha256(self.model_dump_json(exclude={"sha256"}).encode()).hexdigest()

    def is_of(self, metric: str, *, lower_is_better: bool) -> bool:
        """Whether values of a metric compare with these; an older file does not name its own."""
        return self.metric in ("", metric) and self.lower_is_better == lower_is_better


class Ratings:
    """The watched metric of a run's checkpoints, kept in a file that every process can read.

    Args:
      folder: the run directory.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def add(
        self,
        step: int,
        value: float,
        *,
        lower_is_better: bool,
        others: Collection[int],
        metric: str = "",
    ) -> None:
        """Remembers a value; one that is not finite is none.

        A file that cannot be written is warned of.  Values of another metric, or of another
        direction, do not compare: they are forgotten.

        Args:
          step: of the checkpoint.
          value: of the metric.
          lower_is_better: whether less of it is better.
          others: steps of checkpoints whose values are worth keeping.
          metric: its name in full.
        """
        try:
            before = self._read()
        except CheckpointError as error:
            print(f"warning: {error}; begun anew", file=sys.stderr, flush=True)
            before = None
        values = {}
        if before is not None and before.is_of(metric, lower_is_better=lower_is_better):
            values = {one: known for one, known in before.values.items() if one in others}
        values.pop(step, None)
        if math.isfinite(value):
            values[step] = value
        record = _Record(
            metric=metric, lower_is_better=lower_is_better, values=dict(sorted(values.items()))
        )
        record.sha256 = record.digest
        try:
            replace_file(self._file, record.model_dump_json(indent=2) + "\n")
        except OSError as error:
            print(f"warning: {self._file} cannot be written: {error}", file=sys.stderr, flush=True)

    def ranked(self) -> list[int]:
        """Returns the steps that have a value, the best first; of equal ones the earliest.

        Raises:
          CheckpointError: the file is damaged.
        """
        record = self._read()
        if record is None:
            return []
        sign = 1 if record.lower_is_better else -1
        return sorted(record.values, key=lambda step: (sign * record.values[step], step))

    def _read(self) -> _Record | None:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = _Record.model_validate_json(text)
        except pydantic.ValidationError as error:
            faults = "; ".join(str(fault["msg"]) for fault in error.errors()[:3])
            raise CheckpointError(
                f"{self._file}, which says which checkpoint is best, is damaged: {faults}"
            ) from None
        if record.sha256 not in (None, record.digest):
            raise CheckpointError(
                f"{self._file}, which says which checkpoint is best, was altered: its sha256 does "
                "not fit. Delete it and evaluate again, or name a checkpoint by its step."
            )
        finite = {step: value for step, value in record.values.items() if math.isfinite(value)}
        return record.model_copy(update={"values": finite})
