"""The mean of metrics over batches, element by element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t2t_torch.errors import TrialError


def elementwise_mean(values: Iterable[Any]) -> NDArray[np.float64]:
    """Returns the mean of numbers or arrays, all of one shape; it has that shape.

    Raises:
      TrialError: there are none, or their shapes differ.
    """
    arrays = [np.asarray(value, np.float64) for value in values]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) != 1:
        found = ", ".join(str(list(shape)) for shape in shapes) or "nothing"
        raise TrialError(f"elementwise_mean was given {found}; values of one shape were expected.")
    mean: NDArray[np.float64] = np.mean(np.stack(arrays), axis=0)
    return mean
