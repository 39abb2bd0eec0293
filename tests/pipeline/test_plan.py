"""The order of training."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.pipeline.plan import EpochPlan, batching_scheme

LENGTHS = {
    "inputs": np.random.default_rng(1).integers(1, 60, 3000).astype(np.int32),
    "targets": np.random.default_rng(2).integers(1, 60, 3000).astype(np.int32),
}


def plan(seed=0, lengths=LENGTHS, batch_size=512, max_length=50, window=0):
    scheme = batching_scheme(batch_size, max_length, 8, 1.1, drop_long_sequences=True)
    return EpochPlan(lengths, scheme, seed=seed, window=window)


def epoch(a_plan, number):
    n = a_plan.batches_per_epoch
    return [a_plan.batch(k) for k in range(number * n, (number + 1) * n)]


def test_every_kept_row_is_seen_once_in_every_epoch():
    longest = np.maximum(LENGTHS["inputs"], LENGTHS["targets"])
    kept = np.flatnonzero(longest <= 50)
    for number in range(3):
        assert np.array_equal(np.sort(np.concatenate(epoch(plan(), number))), kept)


def test_a_batch_is_found_without_those_before_it():
    fresh = plan()
    for k in (700, 3, 120, 121):
        assert np.array_equal(fresh.batch(k), plan().batch(k))


def test_epochs_and_seeds_differ():
    orders = [np.concatenate(epoch(plan(seed), n)).tolist() for seed, n in ((0, 0), (0, 1), (1, 0))]
    assert orders[0] != orders[1] and orders[0] != orders[2]


def test_the_order_never_moves():
    """Written down: a run must resume with another version of NumPy or of this library."""
    tiny = plan(seed=7, lengths={"targets": np.arange(1, 21, dtype=np.int32)}, batch_size=40)
    assert [batch.tolist() for batch in epoch(tiny, 0)] == ORDER_OF_SEED_7


def test_no_batch_exceeds_the_token_budget():
    for batch in epoch(plan(), 0):
        longest = max(int(length[batch].max()) for length in LENGTHS.values())
        assert longest * len(batch) <= 512


def test_at_most_one_batch_of_an_epoch_is_short():
    a_plan = plan()
    short = 0
    for batch in epoch(a_plan, 0):
        longest = np.max([length[batch].max() for length in LENGTHS.values()])
        short += len(batch) < a_plan.scheme.batch_sizes[a_plan.scheme.buckets(longest)]
    assert short <= 1


def test_dropped_rows_are_counted():
    report = plan().report
    longest = np.maximum(LENGTHS["inputs"], LENGTHS["targets"])
    assert report.too_long == int((longest > 50).sum()) > 0
    assert report.kept + report.too_long == report.examples == 3000


def test_the_padding_of_the_report_is_that_of_the_batches():
    a_plan = plan()
    tokens = positions = 0
    for batch in epoch(a_plan, 0):
        for length in LENGTHS.values():
            tokens += length[batch].sum()
            positions += length[batch].max() * len(batch)
    assert a_plan.report.tokens == tokens
    assert a_plan.report.padding_fraction == pytest.approx(1 - tokens / positions)


def test_the_table_of_buckets_adds_up_to_the_report():
    a_plan = plan()
    buckets, report = a_plan.buckets, a_plan.report
    assert sum(bucket.rows for bucket in buckets) == report.kept
    assert sum(bucket.batches for bucket in buckets) == report.batches
    whole = [b for b in buckets if b.rows == b.batches * b.batch_size]
    assert len(whole) >= len(buckets) - 1  # what the last has left over
    lowest, highest = (f(b.padding for b in buckets) for f in (min, max))
    assert lowest <= report.padding_fraction <= highest


def test_the_largest_batch_is_that_with_most_positions():
    a_plan = plan()
    rows = a_plan.largest_batch
    most = max(
        sum(len(batch) * int(length[batch].max()) for length in LENGTHS.values())
        for batch in epoch(a_plan, 0)
    )
    assert sum(len(rows) * int(length[rows].max()) for length in LENGTHS.values()) == most


def test_with_a_window_every_row_is_seen_once_and_lengths_are_all_over_the_epoch():
    a_plan = plan(window=8)
    batches = epoch(a_plan, 1)
    longest = np.maximum(LENGTHS["inputs"], LENGTHS["targets"])
    assert np.array_equal(np.sort(np.concatenate(batches)), np.flatnonzero(longest <= 50))
    halves = np.array_split([longest[batch].max() for batch in batches], 2)
    assert abs(halves[0].mean() - halves[1].mean()) < 4
    assert not all(np.array_equal(a, b) for a, b in zip(batches, epoch(a_plan, 2), strict=True))
    assert np.array_equal(plan(window=8).batch(321), a_plan.batch(321))


def test_a_window_moves_a_batch_less_than_its_size():
    unmoved = [batch.tolist() for batch in epoch(plan(window=1), 0)]
    moved = [batch.tolist() for batch in epoch(plan(window=8), 0)]
    distances = [abs(i - unmoved.index(batch)) for i, batch in enumerate(moved)]
    assert 0 < max(distances) < 8


def test_a_window_as_long_as_the_epoch_shuffles_all_of_it():
    count = plan().batches_per_epoch
    for k in range(count):
        assert np.array_equal(plan(window=count).batch(k), plan().batch(k))


def test_orders_of_more_rows_than_there_are_random_bits_for_are_orders(monkeypatch):
    monkeypatch.setattr("t2t_torch.pipeline.plan._NOISE_BITS", 3)
    rows = np.concatenate(epoch(plan(), 0))
    longest = np.maximum(LENGTHS["inputs"], LENGTHS["targets"])
    assert np.array_equal(np.sort(rows), np.flatnonzero(longest <= 50))


def test_the_order_does_not_depend_on_the_pieces_in_which_it_is_made(monkeypatch):
    expected = epoch(plan(), 1)
    monkeypatch.setattr("t2t_torch.pipeline.plan._PIECE", 64)
    assert all(np.array_equal(a, b) for a, b in zip(epoch(plan(), 1), expected, strict=True))


def test_nothing_left_is_an_error_and_not_an_endless_loop():
    with pytest.raises(DataError, match="none of the 5 examples"):
        plan(lengths={"targets": np.full(5, 99, np.int32)})


def test_the_fingerprint_knows_lengths_scheme_and_seed():
    changed = {**LENGTHS, "inputs": LENGTHS["inputs"][::-1]}
    prints = [plan(), plan(seed=1), plan(lengths=changed), plan(batch_size=600), plan(window=9)]
    assert len({p.fingerprint for p in prints}) == 5
    assert plan().fingerprint == plan().fingerprint


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=200),
    st.integers(1, 300),
    st.integers(0, 2**64),
)
def test_any_lengths_make_whole_epochs(lengths, batch_size, seed):
    scheme = batching_scheme(batch_size, 100, 8, 1.1, drop_long_sequences=True)
    a_plan = EpochPlan({"targets": np.asarray(lengths, np.int32)}, scheme, seed=seed)
    rows = np.concatenate(epoch(a_plan, 0))
    assert sorted(rows.tolist()) == list(range(len(lengths)))


def test_what_a_bucket_has_left_over_may_fill_batches_of_empty_ones():
    scheme = batching_scheme(40, 20, 8, 1.5, drop_long_sequences=True)  # of 5, 3, 2 and 2 rows
    a_plan = EpochPlan({"targets": np.full(4, 3, np.int32)}, scheme)
    assert sorted(len(batch) for batch in epoch(a_plan, 0)) == [1, 3]
    assert [(b.boundary, b.rows, b.batches) for b in a_plan.buckets] == [(12, 4, 2)]
    assert a_plan.report.padding_fraction == 0.0


def test_without_carrying_each_bucket_may_end_with_a_short_batch():
    scheme = batching_scheme(40, 20, 8, 1.5, drop_long_sequences=True)
    lengths = np.asarray([3] * 7 + [10] * 4, np.int32)  # buckets of 5 and of 3
    a_plan = EpochPlan({"targets": lengths}, scheme, carry=False)
    assert [len(batch) for batch in a_plan.in_order()] == [5, 2, 3, 1]


ORDER_OF_SEED_7 = [
    [0, 1, 2, 3, 4],
    [16, 17],
    [12, 13],
    [5, 6, 7, 8],
    [18],
    [14, 15],
    [19],
    [9, 10, 11],
]
