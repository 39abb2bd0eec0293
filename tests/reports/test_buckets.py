from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.pipeline.plan import BatchingScheme, EpochPlan, batching_scheme
from t2t_torch.workflows.inspect_data import bucket_table


def test_the_table_sums_up_to_what_the_plan_reports():
    rng = np.random.default_rng(1)
    lengths = {name: rng.integers(1, 120, 3000) for name in ("inputs", "targets")}
    scheme = batching_scheme(512, 100, 8, 1.1, drop_long_sequences=True)
    plan = EpochPlan(lengths, scheme)
    table = bucket_table("a set", plan)
    report = plan.report
    assert (table.rows, table.batches, table.tokens) == (
        report.kept, report.batches, report.tokens
    )  # fmt: skip
    assert table.left_out == report.too_long + report.too_short
    assert table.padding == pytest.approx(report.padding_fraction)
    assert sum(one.rows for one in table.buckets) == table.rows
    assert sum(one.tokens for one in table.buckets) == table.tokens


def test_two_batches_are_summed_by_hand():
    lengths = {"inputs": np.asarray([2, 3, 9]), "targets": np.asarray([1, 3, 4])}
    scheme = BatchingScheme(boundaries=(8,), batch_sizes=(2, 1), min_length=0, max_length=10)
    short, long = bucket_table("a set", EpochPlan(lengths, scheme)).buckets
    assert (short.low, short.high, short.batch_size) == (0, 7, 2)
    assert (short.rows, short.tokens, short.positions) == (2, 9, 12)
    assert short.padding == pytest.approx(0.25)
    assert (long.low, long.high, long.padding) == (8, None, 0)
