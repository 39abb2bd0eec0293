"""Rows cut in pieces, each an example: how a language model learns long texts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import HParamsError
from t2t_torch.pipeline.lengths import measured

if TYPE_CHECKING:
    from t2t_torch.features import Features


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of rows, in the rows' order; every row has at least one.

    Attributes:
      rows: the row of each piece, [P] int32.
      starts: its first position there, [P] int32.
      lengths: its positions, [P] int32: `size`, and of a row's last piece from 1 on; 0 of an empty
        row.
      size: positions of every piece of a row but its last.
    """

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    size: int

    @classmethod
    def of(cls, lengths: npt.NDArray[Any], size: int) -> Pieces:
        """Cuts rows of some lengths, [N], into pieces of `size` positions."""
        counts = np.maximum(-(-lengths // size), 1)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), counts)
        first = np.cumsum(counts) - counts  # piece of each row
        starts = ((np.arange(len(rows)) - first[rows]) * size).astype(np.int32)
        rest = lengths[rows].astype(np.int32) - starts
        return cls(rows, starts, np.minimum(rest, size), size)

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Which pieces are full ones of a row that has several, [P]."""
        pieces_of_row = np.bincount(self.rows)
        whole: npt.NDArray[np.bool_] = self.lengths == self.size
        whole &= pieces_of_row[self.rows] > 1
        return whole


def check_splittable(features: Features) -> str:
    """Returns the name of the text that `split_to_length` cuts: a language model's only sequence.

    Raises:
      HParamsError: there are inputs, or other sequences.
    """
    sequences = [name for name, feature in features.all.items() if feature.is_sequence]
    if features.has_inputs or list(measured(features.targets)) != sequences or len(sequences) != 1:
        told = ", ".join(features.all)
        raise HParamsError(
            "split_to_length cuts the texts of a language model, whose pieces are examples of "
            f"their own; the features here are {told}. Set split_to_length=0, and cut with "
            "max_input_seq_length or leave long examples out with max_length."
        )
    return sequences[0]
