"""Folds of cross-validation: parts of the training rows, of which equal inputs share one."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import HParamsError
from t2t_torch.reports.column_statistics import StoredColumn, combined, row_hashes

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features

_FOLD = re.compile(r"([1-9]\d*)/([1-9]\d*)")


def rows_of_fold(shards: Shards, features: Features, fold: str) -> npt.NDArray[np.bool_] | None:
    """Returns which training rows are in a fold, [rows]; None if there is no fold.

    A row belongs to a fold by a hash of its inputs: equal inputs are in one fold, and a row keeps
    its fold when others are added.

    Args:
      shards: training split.
      features: features of the problem.
      fold: number of the fold, from 1, and number of folds, as "2/5"; or "".

    Raises:
      HParamsError: `fold` is not of this form.
    """
    if not fold:
        return None
    match = _FOLD.fullmatch(fold)
    number, folds = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= folds or folds < 2:
        raise HParamsError(f"fold={fold!r}: expected the number of a fold and of all, as 2/5.")
    names = [features.columns[name] for name in features.inputs]
    hashes = [row_hashes(StoredColumn(shards.column(name))) for name in names]
    # Mixed again: sums of few values are no uniform numbers.
    mixed = functools.reduce(combined, hashes, np.zeros(len(shards), np.uint64))
    return np.asarray(mixed % np.uint64(folds) == number - 1)
