"""Which training rows a model of an ensemble sees, and how often.  Breiman 1996, "Bagging
Predictors"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.pipeline.plan import noise, uniform

_STREAM = 6  # of the noise; the plan of an epoch has 0 to 3, a mixture 4 and 5


def bagged(rows: int, share: float, seed: int) -> npt.NDArray[Any] | None:
    """Returns how often each row of a training split is in every epoch, by its number and the seed.

    A Poisson draw for each row by itself (Oza and Russell 2001, "Online Bagging and Boosting"): at
    a share of 1 that is a bootstrap of so many rows, of which 37 % are left out, whatever the
    number of processes, and whatever other rows there are.

    Args:
      rows: of the split.
      share: the mean count; 0 draws nothing.
      seed: of the draw.

    Returns:
      [rows] integers from 0 on; None if nothing is drawn: each row once.
    """
    if not share:
        return None
    random = uniform(noise(rows, seed, 0, _STREAM))  # [rows]
    counts = np.zeros(rows, np.int64)
    term = below = math.exp(-share)
    count = 0
    while term > 0.0 and below < 1.0:
        counts += random >= below
        count += 1
        term *= share / count
        below += term
    return counts
