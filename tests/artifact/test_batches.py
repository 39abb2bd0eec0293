"""Inputs of like lengths are put together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.artifact.batches import batches_of


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 15))
def test_each_input_is_in_one_batch_and_a_batch_keeps_to_its_budget(
    lengths: list[int], budget: int
) -> None:
    batches = list(batches_of(lengths, budget))
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget


def test_batches_are_as_full_as_their_budget_lets_them_be() -> None:
    assert list(batches_of([1, 6, 2, 5, 0, 2], 6)) == [[1], [3], [2, 5, 0], [4]]
