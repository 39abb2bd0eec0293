from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.reports.column_statistics import StoredColumn

PAIRS = [
    (np.arange(7, dtype=np.int32), np.asarray([0, 2, 2, 7], np.int32)),
    (np.zeros(0, np.int32), np.asarray([0], np.int32)),
    (np.arange(10, 13, dtype=np.int32), np.asarray([0, 0, 3], np.int32)),
]
ROWS = [[0, 1], [], [2, 3, 4, 5, 6], [], [10, 11, 12]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_blocks_hold_every_row_once_in_order(size):
    found = {}
    for first, rows in StoredColumn(PAIRS).blocks(size):
        assert len(rows.values) <= size or len(rows) == 1
        assert len(rows) <= size
        for i in range(len(rows)):
            assert first + i not in found
            found[first + i] = rows.values[rows.offsets[i] : rows.offsets[i + 1]].tolist()
    assert [found[i] for i in range(len(ROWS))] == ROWS


def test_a_row_is_found_by_its_number_across_batches():
    column = StoredColumn(PAIRS)
    assert [column.row(i).tolist() for i in range(len(column))] == ROWS
    assert column.row(2, limit=2).tolist() == [2, 3]
    assert column.num_values == 10
