"""Inputs of like lengths are put together."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.runtime.session import batches_of


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 15), st.integers(0, 9))
def test_each_input_is_in_one_batch_and_a_batch_keeps_to_its_budget(
    lengths: list[int], budget: int, price: int
) -> None:
    batches = batches_of(lengths, budget, price)
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 40), st.integers(0, 9))
def test_no_other_cut_costs_less(lengths: list[int], budget: int, price: int) -> None:
    def cost(batches: list[list[int]]) -> int:
        return sum(price + max(1, *batch) * len(batch) for batch in batches)

    def cuts(left: list[int]) -> Iterator[list[list[int]]]:
        if not left:
            yield []
        for size in range(1, len(left) + 1):
            if size == 1 or max(1, left[0]) * size <= budget:
                yield from ([left[:size], *rest] for rest in cuts(left[size:]))

    found = [[lengths[number] for number in one] for one in batches_of(lengths, budget, price)]
    assert cost(found) == min(map(cost, cuts(sorted(lengths, reverse=True))))


def test_where_a_batch_costs_as_much_as_it_may_hold_there_are_few() -> None:
    assert batches_of([1, 6, 2, 5, 0, 2], 6, 6) == [[1], [3], [2, 5], [0, 4]]


def test_a_hundred_thousand_inputs_of_nothing_are_cut_too() -> None:
    assert {len(batch) for batch in batches_of([0] * 100_000, 1_000, 1_000)} == {1_000}


def test_a_batch_that_costs_nothing_has_no_padding() -> None:
    assert batches_of([3, 2, 3, 1, 2], 100, 0) == [[0, 2], [1, 4], [3]]
