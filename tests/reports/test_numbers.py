from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.data.shards import Ragged
from t2t_torch.features import Features, Image, Real, Span, Words
from t2t_torch.reports.column_statistics import StoredColumn, number_histogram, numbers_of
from t2t_torch.text.encoder import ByteEncoder


def test_each_place_has_its_own_figures_whatever_the_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    table = (rng.normal(size=(500, 3)) * [1, 10, 0.001] + [0, 100_000, 5]).astype(np.float32)
    rows = Ragged.from_lists(list(table), np.float32)
    blocks = StoredColumn.blocks
    monkeypatch.setattr(StoredColumn, "blocks", lambda self: blocks(self, 37))
    found = numbers_of(StoredColumn([(rows.values, rows.offsets)]), 3)
    exact = table.astype(np.float64)
    np.testing.assert_allclose([one.mean for one in found], exact.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose([one.std for one in found], exact.std(axis=0), rtol=1e-9)
    np.testing.assert_array_equal([one.low for one in found], exact.min(axis=0))
    np.testing.assert_array_equal([one.high for one in found], exact.max(axis=0))


def test_standardized_numbers_are_told_as_they_were(statistics_of):
    feature = Real(size=1, mean=[100.0], std=[20.0])
    statistics = statistics_of(
        Features({"inputs": feature}, {}), train=[{"inputs": x} for x in (60, 100, 140)]
    )
    (found,) = statistics.features[0].splits["train"].numbers
    assert (found.mean, found.low, found.high) == pytest.approx((100, 60, 140))
    assert found.std == pytest.approx(np.std([60, 100, 140]))
    assert statistics.features[0].histogram.edges[0] == pytest.approx(60)
    assert statistics.features[0].histogram.edges[-1] == pytest.approx(140)


def test_pictures_have_figures_of_each_channel(statistics_of):
    picture = np.zeros((2, 3, 3), np.uint8)
    picture[..., 1] = 10
    picture[0, 0, 2] = 60
    statistics = statistics_of(Features({"inputs": Image(2, 3)}, {}), train=[{"inputs": picture}])
    found = statistics.features[0].splits["train"].numbers
    assert [one.mean for one in found] == [0, 10, 10]
    assert [one.high for one in found] == [0, 10, 60]


def test_answers_are_measured_in_words(statistics_of):
    features = Features({"context": Words(ByteEncoder())}, {"targets": Span("context")})
    rows = [{"context": ["a", "b", "c"], "targets": targets} for targets in ((0, 0), (0, 2), None)]
    statistics = statistics_of(features, train=rows)
    found = statistics.features[1].splits["train"].spans
    assert (found.without, found.mean_words, found.most_words) == (1, 2.0, 3)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_told_as_they_are(odd):
    rows = Ragged.from_lists([[1.0], [odd], [3.0]], np.float32)
    (found,) = numbers_of(StoredColumn([(rows.values, rows.offsets)]), 1)
    assert not np.isfinite(found.mean)
    histogram = number_histogram({"train": rows.values, "dev": np.asarray([odd], np.float32)})
    assert (histogram.edges[0], histogram.edges[-1]) == (1.0, 3.0)
    assert sum(histogram.counts["train"]) == 2 and sum(histogram.counts["dev"]) == 0
