"""How the metrics of validation batches are joined."""

from __future__ import annotations

import enum
from typing import Any

from t2t_torch.errors import TrialError


class Reducer(enum.Enum):
    """What a trial's `evaluation_reducer` returns: for all metrics, or in a dict by name."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


def reducers_of(trial: Any) -> Reducer | dict[str, Reducer]:
    """Returns how a trial's metrics are joined: by `evaluation_reducer`, or averaged.

    Raises:
      TrialError: it is neither a Reducer nor a dict of them.
    """
    method = getattr(trial, "evaluation_reducer", None)
    found = Reducer.AVG if method is None else method()
    values = list(found.values()) if isinstance(found, dict) else [found]
    if not all(isinstance(value, Reducer) for value in values):
        raise TrialError(
            f"evaluation_reducer returned {found!r}; a pedl.frameworks.pytorch.Reducer (AVG, SUM, "
            "MAX or MIN), or a dict of them by the metrics' names, was expected."
        )
    return found
