"""A bootstrap of the training rows is a function of their numbers and a seed."""

from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.pipeline.plan import EpochPlan, batching_scheme
from t2t_torch.pipeline.training_split import bagged

LENGTHS = {"inputs": np.random.default_rng(1).integers(1, 60, 3000).astype(np.int32)}


def plan(counts=None, seed=0):
    scheme = batching_scheme(512, 50, 8, 1.1, drop_long_sequences=True)
    return EpochPlan(LENGTHS, scheme, seed=seed, counts=counts)


def test_counts_are_those_of_a_bootstrap():
    counts = bagged(200_000, 1.0, 0)
    for count, expected in enumerate((0.36788, 0.36788, 0.18394, 0.06131)):
        assert np.mean(counts == count) == pytest.approx(expected, abs=0.005)
    assert bagged(200_000, 0.5, 0).mean() == pytest.approx(0.5, abs=0.01)
    assert bagged(10, 0.0, 0) is None


def test_a_rows_count_depends_on_its_number_and_the_seed_alone():
    assert np.array_equal(bagged(100, 1.0, 7), bagged(1000, 1.0, 7)[:100])
    assert not np.array_equal(bagged(100, 1.0, 7), bagged(100, 1.0, 8))


def test_every_epoch_has_each_row_as_often_as_it_was_drawn():
    counts = bagged(3000, 1.0, 3)
    expected = np.where(LENGTHS["inputs"] <= 50, counts, 0)
    made = plan(counts)
    for number in range(2):
        n = made.batches_per_epoch
        rows = np.concatenate([made.batch(k) for k in range(number * n, (number + 1) * n)])
        assert np.array_equal(np.bincount(rows, minlength=3000), expected)
    assert made.report.kept == expected.sum()
    assert made.report.examples == 3000


def test_another_draw_is_another_order_of_the_data():
    prints = {plan(counts).fingerprint for counts in (None, bagged(3000, 1.0, 0))}
    assert len({*prints, plan(bagged(3000, 1.0, 1)).fingerprint}) == 3
    assert plan(np.ones(3000, int)).batch(5).tolist() == plan().batch(5).tolist()
