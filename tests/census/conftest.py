"""Data of every kind, held in memory, and its census."""

from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.data.shards import Ragged, value_dtype
from t2t_torch.reports.statistics import Reader


class MemoryShards:
    """A split, encoded by its features; in two pieces, as of two shards."""

    def __init__(self, features, rows):
        self.num_rows = len(rows)
        self._columns = {}
        for name, feature in features.all.items():
            values = [row[features.sources[name]] for row in rows]
            self._columns[name] = Ragged.from_lists(
                [list(feature.encode(value)) for value in values],
                value_dtype(feature.arrow_type),
            )
        self.lengths = {name: one.lengths.astype(np.int32) for name, one in self._columns.items()}

    def column(self, name):
        one = self._columns[name]
        half = len(one) // 2
        pieces = [one.between(0, half), one.between(half, len(one))]
        return [(piece.values, piece.offsets.astype(np.int32)) for piece in pieces]


@pytest.fixture(scope="session")
def census_of():
    """Takes the census of rows by split."""

    def take(features, num_samples=2, view=None, **splits):
        shards = {split: MemoryShards(features, rows) for split, rows in splits.items()}
        return Reader(view or features, shards).take("a_problem", "a/folder", num_samples)

    return take
