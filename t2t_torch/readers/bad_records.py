"""Where a record stands in its file, and what becomes of bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from t2t_torch.errors import DataError, UsageError

MAX_LISTED = 1000
"""So many bad records are remembered; all are counted."""

Policy = Literal["fail", "skip"]


class Place(NamedTuple):
    """A place in a file.

    Attributes:
      path: the file.
      line: from 1, where the record starts; in formats without lines the number of the `unit`.
      column: from 1, the character of the line (not the byte, and not the field); None for all of
        the line.
      unit: what `line` counts.
    """

    path: Path
    line: int
    column: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        place = f"{self.path}, {self.unit} {self.line}"
        return place if self.column is None else f"{place}, column {self.column}"


class Record(NamedTuple):
    """What one row, sentence, tree, question or picture of a file holds.

    Attributes:
      place: where it starts.
      values: by the name of the field.
    """

    place: Place
    values: dict[str, Any]


class BadRecords:
    """What becomes of records that cannot be read or used.

    Attributes:
      policy: "fail" ends the reading at the first; "skip" leaves them out.
      count: how many were left out.
      listed: the place and the fault of the first `MAX_LISTED` of them.

    Raises:
      UsageError: there is no such policy.
    """

    def __init__(self, policy: Policy = "fail") -> None:
        if policy not in get_args(Policy):
            raise UsageError(
                f"{policy!r} is nothing that can be done with bad records; choose one of "
                f"{', '.join(get_args(Policy))}."
            )
        self.policy: Policy = policy
        self.count = 0
        self.listed: list[str] = []

    def report(self, place: Place, why: str) -> None:
        """Leaves a record out; DataError with the place under "fail"."""
        told = f"{place}: {why}"
        if self.policy == "fail":
            raise DataError(
                f"{told.rstrip('.')}. Mend it, or leave bad records out:  --on_bad_record=skip"
            )
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(told)
