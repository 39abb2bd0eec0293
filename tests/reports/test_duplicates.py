from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.reports.column_statistics import Pair, RowKeys, distinct, overlap_of, repeats_of

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=20)


def keys_of(rows):
    inputs, targets = (np.asarray(side, np.uint64) for side in zip(*rows, strict=True))
    return RowKeys.of({"inputs": inputs}, {"targets": targets}, np.zeros_like(inputs))


@given(ROWS)
def test_a_split_is_counted_as_one_would_by_hand(rows):
    repeats = repeats_of(keys_of(rows))
    inputs = [row[0] for row in rows]
    assert repeats.rows == len(rows) - len(set(rows))
    assert repeats.inputs == len(rows) - len(set(inputs))
    assert repeats.most_times == max(Counter(rows).values())
    assert rows.count(rows[repeats.most_row]) == repeats.most_times
    assert repeats.contradictions == sum(
        any(other != row and other[0] == row[0] for other in rows) for row in rows
    )
    for pair in repeats.examples:
        assert pair.first < pair.second
        assert rows[pair.first] == rows[pair.second]
    for pair in repeats.input_examples:
        assert pair.first < pair.second
        assert rows[pair.first][0] == rows[pair.second][0]
    assert bool(repeats.examples) == bool(repeats.rows)


@given(ROWS, ROWS)
def test_two_splits_are_compared_as_one_would_by_hand(here, there):
    overlap = overlap_of("dev", keys_of(here), "train", keys_of(there))
    assert overlap.rows == sum(row in there for row in here)
    given_there = {row[0] for row in there}
    assert overlap.inputs == sum(row[0] in given_there for row in here)
    for pair in overlap.examples:
        assert there[pair.first] == here[pair.second]
    for pair in overlap.input_examples:
        assert there[pair.first][0] == here[pair.second][0]
        assert here[pair.second] not in there


def test_without_inputs_only_whole_rows_are_compared():
    numbers = np.asarray([5, 7, 5], np.uint64)
    keys = RowKeys.of({}, {"targets": numbers}, np.zeros_like(numbers))
    repeats = repeats_of(keys)
    assert (repeats.rows, repeats.examples) == (1, (Pair(0, 2),))
    assert (repeats.inputs, repeats.contradictions) == (None, None)
    assert overlap_of("dev", keys, "train", keys).inputs is None


def test_rows_that_differ_in_a_note_are_no_repeats_and_no_contradictions():
    same = np.asarray([1, 1], np.uint64)
    keys = RowKeys.of({"inputs": same}, {"targets": same}, np.asarray([3, 4], np.uint64))
    repeats = repeats_of(keys)
    assert (repeats.rows, repeats.inputs, repeats.contradictions) == (0, 1, 0)


def test_different_hashes_are_counted():
    assert distinct(np.asarray([3, 1, 3, 3], np.uint64)) == 2
    assert distinct(np.zeros(0, np.uint64)) == 0
