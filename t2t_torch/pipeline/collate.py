"""From rows to padded tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch.data.shards import Ragged
from t2t_torch.features import Feature
from t2t_torch.pipeline.plan import FixedShapes
from t2t_torch.pipeline.reader import RowReader, measured

Batch = dict[str, torch.Tensor]
_Numbers = npt.NDArray[Any]


class Collator:
    """Reads rows and pads them: row numbers in, a batch out.

    A feature of shape `(None,)` becomes [B, T], `(None, w)` [B, T, w], both filled up with the
    feature's padding; `()` becomes [B] and any other shape [B, *shape].  Integers become int64,
    floats and bytes stay.

    Args:
      reader: of the rows.
      pad_to: the shapes that batches are filled up to, with padding and rows of it; None pads
        each feature to the longest row of the batch.
    """

    def __init__(self, reader: RowReader, pad_to: FixedShapes | None = None) -> None:
        self._reader = reader
        self._pad_to = pad_to

    def __call__(self, rows: npt.NDArray[Any], epoch: int = 0) -> Batch:
        """Returns the batch of some rows, in the order of their numbers, in an epoch."""
        read = self._reader.read(np.sort(rows), epoch)  # of one shard together
        return stack(self._reader, read, self._pad_to)


def stack(reader: RowReader, rows: dict[str, Ragged], pad_to: FixedShapes | None) -> Batch:
    """Returns the batch of rows that were read.

    Args:
      reader: knows the features.
      rows: of each feature, as many.
      pad_to: as in `Collator`.
    """
    features = reader.features
    count = width = 0
    if pad_to is not None:
        lengths = [features[name].lengths(rows[name].lengths) for name in measured(features)]
        count = max((len(length) for length in lengths), default=0)
        longest = max((int(length.max()) for length in lengths), default=1)
        count, width = pad_to.of(count, longest)
    return {
        name: torch.from_numpy(
            _filled_up(features[name], padded(features[name], values, width), count)
        )
        for name, values in rows.items()
    }


def _filled_up(feature: Feature, rows: _Numbers, count: int) -> _Numbers:
    """Returns at least `count` rows, the last ones all padding.  [B, ...] each."""
    missing = count - len(rows)
    if missing <= 0:
        return rows
    padding = feature.padding if feature.is_sequence else 0
    return np.concatenate([rows, np.full((missing, *rows.shape[1:]), padding, rows.dtype)])


def padded(feature: Feature, rows: Ragged, width: int = 0) -> _Numbers:
    """Returns a feature's rows as [B, ...]; integers become int64, except for 16-bit samples.

    Args:
      feature: whose rows they are.
      rows: flat numbers.
      width: positions of a sequence; 0 for those of the longest row, at least 1.
    """
    values = rows.values
    if values.dtype.kind == "i" and values.dtype != np.int16:
        values = values.astype(np.int64)
    if not feature.is_sequence:
        return values.reshape(-1, *feature.shape)
    lengths = feature.lengths(rows.lengths)
    width = width or max(1, int(lengths.max()))
    inner: Any = feature.shape[1:]
    full = np.full((len(lengths), width, *inner), feature.padding, values.dtype)
    full[np.arange(width) < lengths[:, None]] = values.reshape(-1, *inner)
    return full
