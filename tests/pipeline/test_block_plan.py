"""The order of training in blocks of shards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.pipeline.block_plan import BlockLengths, BlockPlan, cut_blocks
from t2t_torch.pipeline.plan import EpochPlan, FixedShapes, batching_scheme

SCHEME = batching_scheme(256, 50, 8, 1.1, drop_long_sequences=True)
SHARD_ROWS = [300] * 9 + [41]
FIRST_ROWS = np.cumsum([0, *SHARD_ROWS])
LENGTHS = {
    name: np.random.default_rng(seed).integers(1, 60, sum(SHARD_ROWS)).astype(np.int32)
    for seed, name in enumerate(("inputs", "targets"))
}
KEPT = np.flatnonzero(np.maximum(*LENGTHS.values()) <= 50)


def block_lengths(lengths=LENGTHS, shard_rows=SHARD_ROWS, size=900):
    ends = np.cumsum([0, *shard_rows])

    def rows(first, last):
        return {name: length[ends[first] : ends[last]] for name, length in lengths.items()}

    def counts(first, last):
        """The lengths in each shard, as an index has them: equal ones occur in several shards."""
        parts = [
            np.unique(np.stack(list(rows(i, i + 1).values())), axis=1, return_counts=True)
            for i in range(first, last)
        ]
        table = np.concatenate([distinct for distinct, _ in parts], axis=1)
        return dict(zip(lengths, table, strict=True)), np.concatenate([c for _, c in parts])

    return BlockLengths(cut_blocks(shard_rows, size), shard_rows, rows, counts)


def plan(seed=0, scheme=SCHEME, window=0, pad_to=None, **lengths):
    return BlockPlan(block_lengths(**lengths), scheme, seed=seed, window=window, pad_to=pad_to)


def epoch(a_plan, number):
    n = a_plan.batches_per_epoch
    return [a_plan.batch(k) for k in range(number * n, (number + 1) * n)]


@pytest.mark.parametrize(
    ("shard_rows", "size", "blocks"),
    [
        ([10] * 5, 20, [(0, 2), (2, 4), (4, 5)]),
        ([10] * 5, 0, [(0, 5)]),
        ([10] * 5, 50, [(0, 5)]),
        ([30, 5, 5, 30], 20, [(0, 1), (1, 3), (3, 4)]),
        ([7], 5, [(0, 1)]),
    ],
)
def test_blocks_are_whole_shards_of_at_most_as_many_rows(shard_rows, size, blocks):
    assert [(block.start, block.stop) for block in cut_blocks(shard_rows, size)] == blocks


@pytest.mark.parametrize("window", [0, 8])
def test_every_kept_row_is_seen_once_in_every_epoch(window):
    for number in range(3):
        rows = np.concatenate(epoch(plan(window=window), number))
        assert np.array_equal(np.sort(rows), KEPT)


def test_an_epoch_is_one_block_after_the_other_in_another_order_each_time():
    a_plan, orders, announced = plan(), [], None
    for number in range(4):
        starts = []
        for k, batch in enumerate(epoch(a_plan, number), number * a_plan.batches_per_epoch):
            shards, following = a_plan.shards_of(k)
            assert batch.min() >= FIRST_ROWS[shards.start]
            assert batch.max() < FIRST_ROWS[shards.stop]
            if not starts or starts[-1] != shards.start:
                assert announced in (None, shards)
                starts.append(shards.start)
            announced = following
        assert sorted(starts) == [0, 3, 6, 9]
        orders.append(starts)
    assert len(set(map(tuple, orders))) > 1


def test_a_block_is_planned_like_all_rows_of_a_plan():
    """Each block has noise of its own, and the first that of a plan without blocks."""
    a_plan, n = plan(seed=3), 0
    for block in range(4):
        first, last = [0, 3, 6, 9, 10][block : block + 2]
        part = {
            name: length[FIRST_ROWS[first] : FIRST_ROWS[last]] for name, length in LENGTHS.items()
        }
        alone = EpochPlan(part, SCHEME, seed=3, part=block)
        n += alone.batches_per_epoch
        expected = [batch + FIRST_ROWS[first] for batch in epoch(alone, 0)]
        got = [b for k, b in enumerate(epoch(a_plan, 0)) if a_plan.shards_of(k)[0].start == first]
        for one, other in zip(expected, got, strict=True):
            assert np.array_equal(one, other)
    assert n == a_plan.batches_per_epoch
    # Equal blocks have other orders.
    twice = {"targets": np.full(80, 20, np.int32)}
    same = epoch(plan(lengths=twice, shard_rows=[40, 40], size=40), 0)
    assert len({tuple(batch % 40) for batch in same}) > len(same) // 2


def test_a_batch_is_found_without_those_before_it():
    fresh, known = plan(), list(itertools.chain(epoch(plan(), 0), epoch(plan(), 1)))
    for k in np.random.default_rng(0).integers(0, len(known), 40):
        assert np.array_equal(fresh.batch(k), known[k])


@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_share_the_batches_of_one(world_size):
    whole = [batch.tolist() for batch in epoch(plan(), 0)]
    ranks = [plan() for _ in range(world_size)]
    shared = [ranks[k % world_size].batch(k).tolist() for k in range(len(whole))]
    assert shared == whole


def test_the_order_never_moves():
    """Written down: a run must resume with another version of NumPy or of this library."""
    lengths = {"targets": np.arange(1, 21, dtype=np.int32)}
    scheme = batching_scheme(40, 50, 8, 1.1, drop_long_sequences=True)
    tiny = plan(seed=7, scheme=scheme, lengths=lengths, shard_rows=[5] * 4, size=10)
    assert [batch.tolist() for batch in epoch(tiny, 0)] == ORDER_OF_SEED_7


def test_statistics_are_those_of_the_rows():
    a_plan = plan()
    report, batches = a_plan.report, epoch(a_plan, 0)
    tokens = sum(int(length[KEPT].sum()) for length in LENGTHS.values())
    positions = sum(
        int(length[batch].max()) * len(batch) for batch in batches for length in LENGTHS.values()
    )
    assert (report.examples, report.kept) == (sum(SHARD_ROWS), len(KEPT))
    assert report.too_long == sum(SHARD_ROWS) - len(KEPT) > 0 == report.too_short
    assert (report.batches, report.tokens) == (len(batches), tokens)
    assert a_plan.positions == positions
    assert report.padding_fraction == 1 - tokens / positions
    buckets = a_plan.buckets
    for name, total in (("rows", len(KEPT)), ("batches", len(batches)), ("tokens", tokens)):
        assert sum(getattr(bucket, name) for bucket in buckets) == total
    assert [bucket.low for bucket in buckets] == sorted({bucket.low for bucket in buckets})
    assert {b.boundary for b in buckets} <= {*SCHEME.boundaries, 51}


@pytest.mark.parametrize("pad_to", [None, FixedShapes(SCHEME, fills_rows=True)])
def test_the_largest_batch_and_one_of_each_shape(pad_to):
    a_plan = plan(pad_to=pad_to)

    def shape(batch):
        widths = [int(length[batch].max()) for length in LENGTHS.values()]
        if pad_to is None:
            return len(batch), *widths
        rows, width = pad_to.of(len(batch), max(widths))
        return rows, width, width

    def positions(batch):
        rows, *widths = shape(batch)
        return rows * sum(widths)

    shapes = {shape(batch) for batch in epoch(a_plan, 0)}
    each = list(a_plan.one_of_each_shape)
    assert sorted(map(shape, each)) == sorted(shapes)
    assert [positions(batch) for batch in each] == sorted(map(positions, each), reverse=True)
    assert positions(a_plan.largest_batch) == positions(each[0])


@settings(max_examples=40, deadline=None)
@given(
    shards=st.lists(st.lists(st.integers(0, 60), max_size=40), min_size=1, max_size=6),
    size=st.integers(1, 80),
    window=st.integers(0, 3),
)
def test_any_lengths_in_any_blocks(shards, size, window):
    lengths = {"targets": np.asarray(list(itertools.chain(*shards)), np.int32)}
    kept = np.flatnonzero(lengths["targets"] <= 50)
    given_lengths = {"lengths": lengths, "shard_rows": list(map(len, shards)), "size": size}
    if not len(kept):
        with pytest.raises(DataError, match="none of the"):
            plan(window=window, **given_lengths)
        return
    a_plan = plan(window=window, **given_lengths)
    for number in range(2):
        batches = epoch(a_plan, number)
        assert np.array_equal(np.sort(np.concatenate(batches)), kept)
        assert all(len(batch) for batch in batches)
    widths = [max(1, int(lengths["targets"][batch].max())) for batch in batches]
    assert a_plan.positions == sum(w * len(b) for w, b in zip(widths, batches, strict=True))


def test_the_fingerprint_knows_lengths_blocks_scheme_and_seed():
    changed = {**LENGTHS, "inputs": LENGTHS["inputs"][::-1].copy()}
    other = batching_scheme(300, 50, 8, 1.1, drop_long_sequences=True)
    plans = [plan(), plan(seed=1), plan(lengths=changed), plan(scheme=other), plan(size=600)]
    assert len({p.fingerprint for p in [*plans, plan(window=9)]}) == 6
    assert plan().fingerprint == plan().fingerprint


def test_an_index_of_other_rows_is_refused():
    lengths = block_lengths()
    other = block_lengths({name: length[::-1] for name, length in LENGTHS.items()})
    wrong = BlockLengths(lengths.blocks, lengths.shard_rows, lengths.rows, other.counts)
    with pytest.raises(DataError, match="counts other rows than the shards"):
        BlockPlan(wrong, SCHEME).batch(0)


ORDER_OF_SEED_7 = [
    [0, 1, 2, 3, 4], [5, 6, 7, 8], [9], [10, 11], [14, 15], [19], [16, 17], [18], [12, 13]
]  # fmt: skip
