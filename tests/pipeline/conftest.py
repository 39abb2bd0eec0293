"""Shards without files: what the pipeline asks of them, held in memory."""

from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.data.shards import value_dtype


class MemoryShards:
    """Rows of several features in several pieces; `features` encode them, and say the types."""

    def __init__(self, rows, pieces=3, features=None):
        dtypes = {n: value_dtype(f.arrow_type) for n, f in features.items()} if features else {}
        if features:
            rows = [{name: f.encode(row[name]) for name, f in features.items()} for row in rows]
        self.rows = rows
        self._dtypes = dtypes
        self.fingerprint = "memory"
        self.lengths = {
            name: np.asarray([len(row[name]) for row in rows], np.int32) for name in rows[0]
        }
        self._pieces = np.array_split(np.arange(len(rows)), pieces)
        self.shard_rows = [len(piece) for piece in self._pieces]

    def column(self, name):
        """Returns values and offsets of each piece."""
        pairs = []
        for piece in self._pieces:
            lists = [self.rows[i][name] for i in piece]
            offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
            values = np.concatenate([np.zeros(0), *lists]).astype(self._dtypes.get(name, np.int32))
            pairs.append((values, offsets))
        return pairs


@pytest.fixture(scope="session")
def make_shards():
    """Makes `MemoryShards`."""
    return MemoryShards


@pytest.fixture(scope="session")
def memory_shards():
    """Two thousand rows of random lengths; targets are numbered so that a row can be recognized."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(2000):
        inputs = rng.integers(2, 100, rng.integers(1, 40))
        targets = np.concatenate([[i + 2], rng.integers(2, 100, rng.integers(0, 40))])
        rows.append({"inputs": inputs, "targets": targets})
    return MemoryShards(rows)
