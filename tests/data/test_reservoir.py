"""A sample of a stream."""

from __future__ import annotations

from collections import Counter

from t2t_torch.data.vocabulary_builder import Reservoir


def drawn(count: int | None, seed: int = 1) -> list[int]:
    reservoir: Reservoir[int] = Reservoir(count, seed=seed)
    for item in range(1000):
        place = reservoir.place()
        if place is not None:
            reservoir.put(place, item)
    return reservoir.kept


def test_a_bounded_sample_is_the_same_every_time_and_drawn_from_all() -> None:
    assert drawn(100) == drawn(100)
    assert len(set(drawn(100))) == 100
    tenths = Counter(item // 100 for item in drawn(100))
    assert min(tenths[tenth] for tenth in range(10)) > 0


def test_what_fits_is_kept_in_its_order() -> None:
    assert drawn(1000) == drawn(None) == list(range(1000))
