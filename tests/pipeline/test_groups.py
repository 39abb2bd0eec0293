"""Rows of the same lengths, against `np.unique`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.data.length_index import Groups


def check(lengths):
    found = Groups.of(lengths)
    longest = np.maximum.reduce(list(lengths.values()))
    table, of_row = np.unique(np.stack([longest, *lengths.values()]), axis=1, return_inverse=True)
    assert np.array_equal(found.of_row, of_row.reshape(-1))
    assert np.array_equal(found.longest, table[0])
    for expected, length in zip(table[1:], found.lengths.values(), strict=True):
        assert np.array_equal(length, expected)
    assert np.array_equal(found.counts, np.bincount(of_row.reshape(-1)))


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=60))
def test_groups_are_numbered_by_the_longest_length_and_then_by_each(rows):
    check(dict(zip("abc", np.asarray(rows, np.int32).T, strict=True)))


@pytest.mark.parametrize("highest", [100, 100_000, 2**31 - 1])
def test_lengths_of_any_size_are_grouped(highest):
    rng = np.random.default_rng(0)
    check({name: rng.integers(0, highest, 500).astype(np.int32) for name in "ab"})
