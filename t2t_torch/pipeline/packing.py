"""Which short examples share a row: tensor2tensor's packing, as a function of lengths.

First fit: an example goes to the first of the open bins in which all its features have room; if
none has, a new one is opened, and the oldest is closed when `queue_size` are open.  Source:
tensor2tensor, `generator_utils.pack_examples` (1.15.7), whose results golden vectors hold this to.
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
from t2t_torch.pipeline.collate import Batch, stack
from t2t_torch.pipeline.plan import FixedShapes
from t2t_torch.pipeline.reader import RowReader, numbers_per_position

_Numbers = npt.NDArray[Any]
_MOST_EXAMPLES = 1 << 20  # in a bin
_CHUNK = 1 << 18  # examples that are lists of Python's numbers at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """The examples of each bin.

    Attributes:
      members: numbers of the examples, bin after bin, in each in the order in which they came, [M].
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
        """Returns the positions that each bin's examples take, those between them counted.

        Args:
          lengths: of every example, [N].

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
      lengths: for each feature the length of every example, [N].
      capacity: positions of a bin, of each feature; a longer example has a bin to itself.
      spacing: positions left free between two examples.
      queue_size: bins that are open at a time.
      alone: examples that are a bin by themselves at once, [N]; none if None.

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
    """First fit, where the lengths of an example are one number, tried by one subtraction.

    The number has a field for each feature and one that counts examples.  The room of a bin has
    such fields too, with a guard bit above each, which is lost when more is subtracted from the
    field than it holds.

    Args:
      features: how many.
      capacity: of each, spacing after each example counted.
      queue_size: bins that are open at a time.
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
        """Returns the numbers of examples; what is too long needs more than any bin has."""
        packed = np.ones(len(columns[0]), self._dtype)
        for column in columns:
            size = np.minimum(column.astype(np.int64), self._capacity + 1)
            packed = (packed << self._width) | size.astype(self._dtype)
        return packed.tolist()  # type: ignore[no-any-return]

    def place(self, sizes: list[int], too_long: list[bool], alone: list[bool]) -> list[int]:
        """Returns the bin of each example, bins counted in the order of their opening."""
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
                if left & guards == guards:  # nothing was borrowed: every feature has room
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
    """Returns the positions that are left free between the examples of a row.

    One where a text is generated.  A decoder reads the position before a text first, and the
    embedding of padding is the zero vector from which every text starts: so a packed example is
    learnt exactly as it would be alone, and not from the end of the one before.
    """
    return int(any(feature.generates for feature in features.targets.values()))


def check_packable(features: Features) -> None:
    """Checks that all features are sequences, which can stand one after another in a row.

    Raises:
      HParamsError: some are not; all are named.
    """
    others = [name for name, feature in features.all.items() if not feature.is_sequence]
    if others:
        raise HParamsError(
            f"pack_dataset puts several examples into a row, but {', '.join(others)} has one value "
            "for each example and no positions. Set pack_dataset=False; buckets by length waste "
            "little (t2t-trainer --dry_run shows how much)."
        )


# Several examples in each row of a batch.


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

    def __call__(self, numbers: npt.NDArray[Any], epoch: int = 0) -> Batch:
        """Returns the batch of some bins, in the order of their numbers, in an epoch."""
        members = self._bins.of(np.sort(numbers))
        order = np.argsort(members.values, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        read = self._reader.read(members.values[order], epoch)
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
        if feature.starts_of is None:
            return rows.values
        shift = np.repeat(layouts[feature.starts_of].starts, rows.lengths)
        places: _Numbers = rows.values + shift.astype(rows.values.dtype)
        return places


def _filled_up(layout: Layout, numbers: _Numbers, shape: torch.Size) -> torch.Tensor:
    """Returns a number for each position, [rows, width] int64, 0 behind the last."""
    lengths = np.zeros(shape[0], np.int64)
    lengths[: len(layout.offsets) - 1] = np.diff(layout.offsets)
    full = np.zeros(shape, np.int64)
    full[np.arange(shape[1]) < lengths[:, None]] = numbers
    return torch.from_numpy(full)
