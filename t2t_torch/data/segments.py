"""Packed examples, taken apart.

tensor2tensor's packed problems store several examples in one: `targets` holds them one after
another, and `targets_segmentation` says of each id to which it belongs: 1, 2, ..., 0 between them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from t2t_torch.data.ragged import Ragged, Rows

SUFFIX = "_segmentation"
"""What the names of the numbers of the segments end with."""


def separate(rows: Rows, segments: Mapping[str, Ragged]) -> Rows:
    """Returns the examples that rows are packed of, in their order.

    Args:
      rows: by feature.
      segments: by feature, the number of the example of each value; 0 is padding.

    Raises:
      ValueError: a feature has not one number for each value, its numbers fall, or the features
        have not the same examples.
    """
    apart: dict[str, Ragged] = {}
    examples: npt.NDArray[np.int64] | None = None
    for name, row in rows.items():
        apart[name], found = _apart(name, row, segments[name])
        if examples is not None and not np.array_equal(found, examples):
            raise ValueError(f"the features {', '.join(rows)} are not packed of the same examples")
        examples = found
    return apart


def _apart(name: str, row: Ragged, segment: Ragged) -> tuple[Ragged, npt.NDArray[np.int64]]:
    """The examples of a feature, and for each its row and number, as one number."""
    if not np.array_equal(row.lengths, segment.lengths):
        raise ValueError(f"{name!r} and {name + SUFFIX!r} have different lengths")
    kept = np.flatnonzero(segment.values)
    most = int(segment.values.max(initial=0)) + 1
    number = np.repeat(np.arange(len(row)), row.lengths) * most + segment.values
    number = number[kept]  # rises from row to row
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    if (np.diff(number) < 0).any() or segment.values.min(initial=0) < 0:
        raise ValueError(f"the numbers in {name + SUFFIX!r} fall")
    offsets = np.append(starts, len(kept)).astype(np.int64)
    # `most` differs between features: what is compared does not depend on it.
    identity = (number[starts] // most) << 32 | (number[starts] % most)
    return Ragged(row.values[kept], offsets), identity
