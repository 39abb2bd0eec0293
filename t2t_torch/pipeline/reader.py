"""Rows as they stand in the shards, cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from t2t_torch.data.ragged import Ragged
from t2t_torch.features import NO_SPAN, Feature, Span, WordStarts
from t2t_torch.pipeline.lengths import Limits, numbers_per_position
from t2t_torch.pipeline.pieces import Pieces

_Numbers = npt.NDArray[Any]


class Columns(Protocol):
    """Where rows are read from; `data.shards.Shards` is one."""

    def column(self, feature: str) -> list[tuple[_Numbers, _Numbers]]:
        """Returns a column's rows as flat arrays, values and offsets, in row order."""


class RowReader:
    """Reads rows of several features.

    What is aligned to a text that is cut is cut with it: after the words that begin in what is
    left.  A span that is not in it becomes `NO_SPAN`, as the answer of a window without it is.

    Args:
      shards: the data.
      features: by name.
      columns: for each feature, the stored column it is read from.
      limits: to what length examples are cut.
      pieces: where they are what is read by number, and not rows; of the only sequence.
    """

    def __init__(
        self,
        shards: Columns,
        features: Mapping[str, Feature],
        columns: Mapping[str, str],
        limits: Limits | None = None,
        pieces: Pieces | None = None,
    ) -> None:
        self.features = dict(features)
        self._stored = {name: shards.column(columns[name]) for name in features}
        self._limits = limits or Limits()
        self._pieces = pieces
        # Where words begin, by the text that they are of.
        self._starts = {
            feature.of: name
            for name, feature in features.items()
            if isinstance(feature, WordStarts)
        }
        rows = [len(offsets) - 1 for _, offsets in next(iter(self._stored.values()))]
        self._first_row = np.concatenate([[0], np.cumsum(rows)])  # [shards + 1]

    def read(self, numbers: _Numbers) -> dict[str, Ragged]:
        """Returns the stored numbers of rows, or pieces, given in rising order."""
        rows = numbers if self._pieces is None else self._pieces.rows[numbers]
        splits = np.searchsorted(rows, self._first_row)  # [shards + 1]
        kept = self._words_kept(rows, splits)
        read = {}
        for name, feature in self.features.items():
            limit: _Numbers | None = self._limit(name, len(rows))
            if feature.aligned_to in kept:
                limit = kept[feature.aligned_to]
            if limit is not None and feature.is_sequence:
                limit = limit * numbers_per_position(feature)
            skip = None
            if self._pieces is not None and feature.is_sequence:
                skip, limit = self._pieces.starts[numbers], self._pieces.lengths[numbers]
            read[name] = self._gather(name, rows, splits, limit, skip)
            if isinstance(feature, Span) and feature.of in kept:
                read[name] = _spans_within(read[name], kept[feature.of])
        return read

    def _limit(self, name: str, count: int) -> _Numbers | None:
        limit = self._limits.by_feature.get(name)
        return None if limit is None else np.full(count, limit)

    def _words_kept(self, rows: _Numbers, splits: _Numbers) -> dict[str, _Numbers]:
        """Returns for each text that is cut how many of its words are left at most.  [rows]
        each.
        """
        kept = {}
        for text, limit in self._limits.by_feature.items():
            kept[text] = np.full(len(rows), limit)
            if text in self._starts:
                starts = self._gather(self._starts[text], rows, splits)
                before = np.concatenate([[0], np.cumsum(starts.values < limit)])
                kept[text] = np.diff(before[starts.offsets])
        return kept

    def _gather(
        self,
        name: str,
        rows: _Numbers,
        splits: _Numbers,
        limit: _Numbers | None = None,
        skip: _Numbers | None = None,
    ) -> Ragged:
        """Returns the first `limit` numbers of each row after the first `skip`.  [rows] each."""
        pieces = []
        lengths = np.empty(len(rows), np.int64)
        for shard, (values, offsets) in enumerate(self._stored[name]):
            low, high = splits[shard], splits[shard + 1]
            if low == high:
                continue
            local = rows[low:high] - self._first_row[shard]
            starts = offsets[local]
            if skip is not None:
                starts = starts + skip[low:high]
            count = offsets[local + 1] - starts
            if limit is not None:
                count = np.minimum(count, limit[low:high])
            lengths[low:high] = count
            before = np.cumsum(count) - count
            pieces.append(values[np.repeat(starts - before, count) + np.arange(count.sum())])
        return Ragged(np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]))


def _spans_within(spans: Ragged, words: _Numbers) -> Ragged:
    """Returns spans, `NO_SPAN` where the last word is not among the first `words`.  [rows]."""
    ends = spans.values.reshape(-1, 2)
    inside = ends[:, 1] < words
    return Ragged(np.where(inside[:, None], ends, NO_SPAN).reshape(-1), spans.offsets)
