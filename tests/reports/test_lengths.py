from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.reports.column_statistics import (
    extremes,
    histogram_of,
    lengths_of,
    number_histogram,
    pair_histogram,
)

LENGTHS = st.lists(st.integers(0, 3000), min_size=1, max_size=40)


def test_the_figures_are_those_found_by_hand():
    found = lengths_of(np.asarray([1, 1, 2, 4, 12], np.int32), content_from=2)
    assert (found.total, found.mean, found.median, found.p95) == (20, 4.0, 2.0, 12.0)
    assert (found.shortest, found.longest, found.empty) == (1, 12, 2)


@given(LENGTHS, LENGTHS)
def test_a_histogram_holds_every_row(first, second):
    rows = {"train": np.asarray(first), "dev": np.asarray(second)}
    found = histogram_of(rows)
    assert {split: sum(counts) for split, counts in found.counts.items()} == {
        "train": len(first),
        "dev": len(second),
    }
    assert all(len(counts) == len(found.edges) - 1 for counts in found.counts.values())
    assert list(found.edges) == sorted(set(found.edges))


@given(LENGTHS, st.integers(1, 5), st.booleans())
def test_the_extremes_are_those_of_a_stable_sort(lengths, count, longest):
    rows = sorted(range(len(lengths)), key=lambda i: -lengths[i] if longest else lengths[i])
    found = extremes(np.asarray(lengths, np.int32), count, longest=longest)
    assert found == rows[:count]


def test_many_short_rows_and_one_long_one_have_bins_that_grow():
    found = histogram_of({"train": np.asarray([5] * 100 + [9000])})
    assert found.logarithmic
    assert sum(found.counts["train"]) == 101


def test_a_histogram_of_one_number_has_it():
    assert sum(number_histogram({"train": np.asarray([2.5, 2.5])}).counts["train"]) == 2


def test_a_histogram_of_pairs_counts_rows_and_those_beyond():
    rng = np.random.default_rng(0)
    first = rng.integers(1, 50, 1000)
    second = first * 2
    second[0] = 100_000
    found = pair_histogram(("inputs", "targets"), first, second)
    assert np.sum(found.counts) + found.beyond == 1000
    assert 1 <= found.beyond <= 10
    assert found.counts[10 // 2][20 // 2] > 0, "the first is across, the second upwards"
    assert found.counts[20 // 2][10 // 2] == 0
    assert pair_histogram(("a", "b"), first, first).correlation == pytest.approx(1)
    assert pair_histogram(("a", "b"), first, np.full(1000, 3)).correlation is None
