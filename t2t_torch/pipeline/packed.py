"""Several examples in each row of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch.data.ragged import Ragged
from t2t_torch.features import WordStarts
from t2t_torch.pipeline.collate import Batch, stack
from t2t_torch.pipeline.fixed_shapes import FixedShapes
from t2t_torch.pipeline.lengths import numbers_per_position
from t2t_torch.pipeline.packing import Bins
from t2t_torch.pipeline.reader import RowReader

_Numbers = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Where the examples of packed rows stand, for one feature.

    Attributes:
      offsets: where each row begins among the numbers of `segments`, [rows + 1].
      starts: the place of each example in its row, [M].
      segments: of every position the number of its example in its row, from 1; 0 in between.
      positions: of every position its place in its example, from 0; 0 in between.
    """

    offsets: _Numbers
    starts: _Numbers
    segments: _Numbers
    positions: _Numbers

    @classmethod
    def of(cls, lengths: _Numbers, examples: _Numbers, spacing: int = 0) -> Layout:
        """Lays examples out.

        Args:
          lengths: of the examples, row after row, [M].
          examples: in each row, [rows], at least 1 each.
          spacing: free positions between two examples of a row.
        """
        ends = np.cumsum(examples)
        first = np.zeros(len(lengths), np.bool_)
        first[ends - examples] = True
        sizes = lengths + np.where(first, 0, spacing)  # the free positions before it counted
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        row_offsets = offsets[np.concatenate([[0], ends])]
        row_of = np.repeat(np.arange(len(examples)), examples)
        begin = offsets[1:] - lengths
        free = np.arange(offsets[-1]) < np.repeat(begin, sizes)
        number = np.arange(1, len(lengths) + 1) - (ends - examples)[row_of]
        return cls(
            offsets=row_offsets,
            starts=begin - row_offsets[row_of],
            segments=np.where(free, 0, np.repeat(number, sizes)),
            positions=np.where(free, 0, np.arange(offsets[-1]) - np.repeat(begin, sizes)),
        )

    def rows(self, values: _Numbers, padding: int, width: int) -> Ragged:
        """Returns packed rows, filled up with `padding` between the examples.

        Args:
          values: the examples' numbers one after another.
          padding: what stands in free positions.
          width: numbers for each position.
        """
        full = np.full((len(self.segments), width), padding, values.dtype)
        full[self.segments > 0] = values.reshape(-1, width)
        return Ragged(full.reshape(-1), self.offsets * width)


class PackedCollator:
    """Reads the examples of bins: numbers of bins in, a batch out, each bin a row.

    Beside a sequence `x`, [B, T], stand `x_segmentation`, [B, T], the number of the example in its
    row, from 1, and `x_position`, [B, T], the place in the example, from 0; both are 0 where there
    is none.  The places of words are those in the row.

    Args:
      reader: of the examples; all features are sequences.
      bins: which examples share a row.
      pad_to: as in `Collator`.
    """

    def __init__(self, reader: RowReader, bins: Bins, pad_to: FixedShapes | None = None) -> None:
        self._reader = reader
        self._bins = bins
        self._pad_to = pad_to

    def __call__(self, numbers: npt.NDArray[Any]) -> Batch:
        """Returns the batch of some bins, in the order of their numbers."""
        members = self._bins.of(np.sort(numbers))
        order = np.argsort(members.values, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        read = self._reader.read(members.values[order])
        layouts, packed = {}, {}
        for name, rows in read.items():
            lengths = self._reader.features[name].lengths(rows.lengths)[back]
            layouts[name] = Layout.of(lengths, members.lengths, self._bins.spacing)
        for name, rows in read.items():
            feature, layout = self._reader.features[name], layouts[name]
            values = self._placed(name, rows.take(back), layouts)
            packed[name] = layout.rows(values, feature.padding, numbers_per_position(feature))
        batch = stack(self._reader, packed, self._pad_to)
        for name, layout in layouts.items():
            shape = batch[name].shape[:2]
            batch[f"{name}_segmentation"] = _filled_up(layout, layout.segments, shape)
            batch[f"{name}_position"] = _filled_up(layout, layout.positions, shape)
        return batch

    def _placed(self, name: str, rows: Ragged, layouts: Mapping[str, Layout]) -> _Numbers:
        """Returns the numbers of examples; where words begin, counted from the row's beginning."""
        feature = self._reader.features[name]
        if not isinstance(feature, WordStarts):
            return rows.values
        shift = np.repeat(layouts[feature.of].starts, rows.lengths)
        places: _Numbers = rows.values + shift.astype(rows.values.dtype)
        return places


def _filled_up(layout: Layout, numbers: _Numbers, shape: torch.Size) -> torch.Tensor:
    """Returns a number for each position, [rows, width] int64, 0 behind the last."""
    lengths = np.zeros(shape[0], np.int64)
    lengths[: len(layout.offsets) - 1] = np.diff(layout.offsets)
    full = np.zeros(shape, np.int64)
    full[np.arange(shape[1]) < lengths[:, None]] = numbers
    return torch.from_numpy(full)
