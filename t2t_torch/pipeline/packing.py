"""Packing of short examples into rows: tensor2tensor's algorithm, as a function of lengths.

First fit: an example is put into the first open bin with enough space for all its features; if
there is none, a new bin is opened, and the oldest is closed if `queue_size` are open.  Source:
tensor2tensor, `generator_utils.pack_examples` (1.15.7); golden vectors check equal results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch.data.shards import Ragged
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.features.feature import (
    count_positions,
    find_word_starts,
    select_generated,
    select_sequences,
)
from t2t_torch.pipeline.collate import Batch, fill, stack
from t2t_torch.pipeline.plan import FixedShapes
from t2t_torch.pipeline.reader import RowReader, numbers_per_position

_Numbers = npt.NDArray[Any]
_MOST_EXAMPLES = 1 << 20  # in a bin
_CHUNK = 1 << 18  # examples that are lists of Python's numbers at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """The examples of each bin.

    Attributes:
      members: indices of the examples, bin by bin, in order of arrival within a bin, [M].
      offsets: bin i holds `members[offsets[i] : offsets[i + 1]]`, [bins + 1].
      spacing: positions left free between two examples.
    """

    members: _Numbers
    offsets: _Numbers
    spacing: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, numbers: _Numbers) -> Ragged:
        """Returns the examples of some bins."""
        return Ragged(self.members, self.offsets).take(numbers)

    def lengths(self, lengths: _Numbers) -> _Numbers:
        """Returns the number of positions of each bin, including those between examples.

        Args:
          lengths: length of every example, [N].

        Returns:
          [bins] int32.
        """
        before = np.concatenate([[0], np.cumsum(lengths[self.members], dtype=np.int64)])
        between = self.spacing * (np.diff(self.offsets) - 1)
        totals: _Numbers = np.diff(before[self.offsets]) + between
        return totals.astype(np.int32)


def pack(
    lengths: Mapping[str, _Numbers],
    capacity: int,
    *,
    spacing: int = 0,
    queue_size: int = 10,
    alone: npt.NDArray[np.bool_] | None = None,
) -> Bins:
    """Packs examples into bins, about a million of them a second.

    Args:
      lengths: lengths of all examples by feature, [N].
      capacity: positions of a bin for each feature; a longer example has its own bin.
      spacing: positions left free between two examples.
      queue_size: maximum number of open bins.
      alone: mask of examples that get their own bin, [N]; None for none.

    Returns:
      The bins, in the order in which they are closed.
    """
    columns = [np.asarray(length) for length in lengths.values()]
    rows = len(columns[0])
    too_long = np.maximum.reduce(columns) > capacity
    alone = np.zeros(rows, np.bool_) if alone is None else alone
    bins = _OpenBins(len(columns), capacity + spacing, queue_size)
    bin_of = np.empty(rows, np.int32)
    for start in range(0, rows, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        sizes = bins.sizes([column[chunk] + spacing for column in columns])
        bin_of[chunk] = bins.place(sizes, too_long[chunk].tolist(), alone[chunk].tolist())
    order = np.empty(bins.count, np.int32)
    order[[*bins.closed, *bins.open]] = np.arange(bins.count)
    bin_of = order[bin_of]
    members = np.argsort(bin_of, kind="stable").astype(np.int32)
    counts = np.bincount(bin_of, minlength=bins.count)
    return Bins(members, np.concatenate([[0], np.cumsum(counts)]), spacing)


class _OpenBins:
    """First fit, with the lengths of an example packed into one integer for a single subtraction.

    The integer has a bit field for each feature and one that counts examples.  The free space of a
    bin has the same fields, with a guard bit above each, which is cleared on underflow of the
    field.

    Args:
      features: number of features.
      capacity: capacity of each feature, including the spacing after each example.
      queue_size: maximum number of open bins.
    """

    def __init__(self, features: int, capacity: int, queue_size: int) -> None:
        self._capacity = capacity
        self._width = (capacity + 1).bit_length() + 1
        self._queue_size = queue_size
        bits = self._width * features + _MOST_EXAMPLES.bit_length() + 1
        self._dtype = np.int64 if bits < 63 else object
        self._guards, self._empty = _MOST_EXAMPLES << 1, _MOST_EXAMPLES
        for _ in range(features):
            self._guards = self._guards << self._width | 1 << self._width - 1
            self._empty = self._empty << self._width | capacity
        self._rooms: list[int] = []  # of the open bins, the oldest first
        self.open: list[int] = []
        self.closed: list[int] = []
        self.count = 0

    def sizes(self, columns: list[_Numbers]) -> list[int]:
        """Returns the packed lengths of examples; too long ones exceed every bin."""
        packed = np.ones(len(columns[0]), self._dtype)
        for column in columns:
            size = np.minimum(column.astype(np.int64), self._capacity + 1)
            packed = (packed << self._width) | size.astype(self._dtype)
        return packed.tolist()

    def place(self, sizes: list[int], too_long: list[bool], alone: list[bool]) -> list[int]:
        """Returns the bin index of each example, in the order in which bins are opened."""
        guards, empty = self._guards, self._empty | self._guards
        rooms, opened = self._rooms, self.open
        bin_of = []
        for size, fills, by_itself in zip(sizes, too_long, alone, strict=True):
            if by_itself:
                self.closed.append(self.count)
                bin_of.append(self.count)
                self.count += 1
                continue
            for place, room in enumerate(rooms):
                left = room - size
                if left & guards == guards:  # no borrow: there is space for every feature
                    rooms[place] = left
                    bin_of.append(opened[place])
                    break
            else:
                if len(rooms) == self._queue_size:
                    self.closed.append(opened.pop(0))
                    rooms.pop(0)
                rooms.append(guards if fills else empty - size)
                opened.append(self.count)
                bin_of.append(self.count)
                self.count += 1
        return bin_of


def spacing_of(features: Features) -> int:
    """Returns the number of free positions between the examples of a row.

    It is 1 if a text is generated.  A decoder first reads the position before a text, and the
    embedding of padding is the zero vector that starts every text.  A packed example is therefore
    trained exactly as it would be alone, and not on the end of the previous one.
    """
    return int(bool(select_generated(features.targets)))


def check_packable(features: Features) -> None:
    """Checks that all features are sequences, which can be concatenated in a row.

    Raises:
      HParamsError: some are not; the message names all of them.
    """
    sequences = select_sequences(features.all)
    if others := [name for name in features.all if name not in sequences]:
        raise HParamsError(
            f"pack_dataset puts several examples into a row, but {', '.join(others)} has one value "
            "for each example and no positions. Set pack_dataset=False; buckets by length waste "
            "little (t2t-trainer --dry_run shows how much)."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Positions of examples in packed rows, for one feature.

    Attributes:
      offsets: start of each row in `segments`, [rows + 1].
      starts: start of each example in its row, [M].
      segments: index of the example at each position of a row, from 1; 0 in between.
      positions: position within the example, from 0; 0 in between.
    """

    offsets: _Numbers
    starts: _Numbers
    segments: _Numbers
    positions: _Numbers

    @classmethod
    def of(cls, lengths: _Numbers, examples: _Numbers, spacing: int = 0) -> Layout:
        """Computes the layout of examples.

        Args:
          lengths: lengths of the examples, row by row, [M].
          examples: number of examples in each row, at least 1, [rows].
          spacing: number of free positions between two examples of a row.
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
        """Returns packed rows, with `padding` between the examples.

        Args:
          values: concatenated numbers of the examples.
          padding: value of free positions.
          width: number of values per position.
        """
        full = np.full((len(self.segments), width), padding, values.dtype)
        full[self.segments > 0] = values.reshape(-1, width)
        return Ragged(full.reshape(-1), self.offsets * width)


class PackedCollator:
    """Collator of packed examples: indices of bins -> a batch with one bin per row.

    For a sequence `x`, [B, T], the batch also has `x_segmentation`, [B, T], the index of the
    example in its row, from 1, and `x_position`, [B, T], the position in the example, from 0; both
    are 0 at padding.  The positions of words are those in the row.

    Args:
      reader: reader of the examples; all features are sequences.
      bins: the examples of each row.
      pad_to: as in `Collator`.
    """

    def __init__(self, reader: RowReader, bins: Bins, pad_to: FixedShapes | None = None) -> None:
        self._reader = reader
        self._bins = bins
        self._pad_to = pad_to
        self._starts = {name: of for of, name in find_word_starts(reader.features).items()}

    def __call__(self, numbers: npt.NDArray[Any], epoch: int = 0) -> Batch:
        """Returns the batch of bins, in the order of `numbers`, in an epoch."""
        members = self._bins.of(np.sort(numbers))
        order = np.argsort(members.values, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        read = self._reader.read(members.values[order], epoch)
        layouts, packed = {}, {}
        for name, rows in read.items():
            lengths = count_positions(self._reader.features[name], rows.lengths)[back]
            layouts[name] = Layout.of(lengths, members.lengths, self._bins.spacing)
        for name, rows in read.items():
            feature, layout = self._reader.features[name], layouts[name]
            values = rows.take(back).values
            if name in self._starts:  # of words, relative to the packed row
                shift = np.repeat(layouts[self._starts[name]].starts, rows.lengths[back])
                values = values + shift.astype(values.dtype)
            packed[name] = layout.rows(values, feature.padding, numbers_per_position(feature))
        batch = stack(self._reader, packed, self._pad_to)
        for name, layout in layouts.items():
            lengths, shape = np.diff(layout.offsets), batch[name].shape[:2]
            for end, numbers in (("segmentation", layout.segments), ("position", layout.positions)):
                batch[f"{name}_{end}"] = torch.from_numpy(fill(numbers, lengths, shape))
        return batch
