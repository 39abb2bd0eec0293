from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.data.shards import Ragged
from t2t_torch.reports import column_statistics as columns
from t2t_torch.reports.column_statistics import StoredColumn, combined, row_hashes

LISTS = st.lists(st.lists(st.integers(-2, 3), max_size=4), max_size=12)


def hashes_of(rows, dtype=np.int32):
    made = Ragged.from_lists(rows, dtype)
    return row_hashes(StoredColumn([(made.values, made.offsets)]))


@given(LISTS)
def test_two_rows_have_the_same_hash_if_and_only_if_they_are_the_same(rows):
    hashes = hashes_of(rows)
    for i, first in enumerate(rows):
        for j, second in enumerate(rows):
            assert (hashes[i] == hashes[j]) == (first == second)


@given(LISTS, st.integers(1, 5))
def test_hashes_do_not_depend_on_the_blocks(rows, size):
    with pytest.MonkeyPatch.context() as patch:
        whole = hashes_of(rows)
        blocks = StoredColumn.blocks
        patch.setattr(StoredColumn, "blocks", lambda self: blocks(self, size))
        np.testing.assert_array_equal(hashes_of(rows), whole)
    assert columns.BLOCK_VALUES == 1 << 20


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_numbers_of_every_stored_type_are_told_apart(dtype):
    assert len(set(hashes_of([[0], [1], [2], [0, 0], [1, 0], [0, 1]], dtype).tolist())) == 6
    assert hashes_of([[1.25]], np.float32) != hashes_of([[1.5]], np.float32)


def test_the_words_of_thue_and_morse_are_told_apart():
    # A polynomial modulo 2**64 has the same value for these two, whatever its base.
    word = [i.bit_count() % 2 for i in range(4096)]
    first, second = hashes_of([word, [1 - bit for bit in word]])
    assert first != second


@pytest.mark.slow
def test_no_two_of_a_million_numbers_collide():
    rows = Ragged(np.arange(1_000_000, dtype=np.int32), np.arange(1_000_001))
    assert len(np.unique(row_hashes(StoredColumn([(rows.values, rows.offsets)])))) == 1_000_000


def test_pairs_in_the_other_order_are_others():
    first, second = hashes_of([[1]]), hashes_of([[2]])
    assert combined(first, second) != combined(second, first)
