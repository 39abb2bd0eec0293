"""ASHA's rungs against a table that was worked out by hand from Determined's rules."""

from __future__ import annotations

import math

import pytest

from t2t_torch.tune.search_plan import (
    RungBracket,
    Rungs,
    bracket_rungs,
    brackets,
    most_rungs,
    next_bracket,
    rung_lengths,
)


def test_each_rung_has_a_divisorth_of_the_steps_of_the_next_and_at_least_one() -> None:
    assert rung_lengths(3, 400, 4) == (25, 100, 400)
    assert rung_lengths(5, 900, 4) == (3, 14, 56, 225, 900)
    assert rung_lengths(4, 10, 4) == (1, 1, 2, 10)
    assert rung_lengths(1, 7, 4) == (7,)


@pytest.mark.parametrize(
    ("most", "length", "trials", "divisor", "rungs"),
    [
        (5, 400, 16, 4, 3),  # 16 trials: 16, 4, 1
        (5, 400, 15, 4, 2),  # a third rung would be reached by none
        (5, 15, 1000, 4, 2),  # 15 steps: 3, 15
        (5, 10**6, 10**6, 4, 5),
        (5, 64, 64, 4, 4),  # exactly
        (3, 10**6, 10**6, 4, 3),
        (5, 1, 1, 4, 1),
        (5, 100, 9, 3, 3),
    ],
)
def test_there_are_as_many_rungs_as_steps_and_trials_suffice_for(
    most: int, length: int, trials: int, divisor: float, rungs: int
) -> None:
    assert most_rungs(most, length, trials, divisor) == rungs


def test_the_mode_says_how_many_brackets_there_are() -> None:
    assert bracket_rungs("aggressive", 5) == [5]
    assert bracket_rungs("standard", 5) == [5, 4, 3]
    assert bracket_rungs("standard", 4) == [4, 3, 2]
    assert bracket_rungs("conservative", 3) == [3, 2, 1]


def test_trials_are_shared_so_that_brackets_have_about_the_same_work() -> None:
    # Weights 4**2 / 3 and 4**1 / 2: of 16 trials 11.6 and 4.4; the first gets what is left.
    assert brackets([2, 3], 400, 16, 4) == [
        RungBracket((25, 100, 400), 12),
        RungBracket((100, 400), 4),
    ]
    # 5.33, 2 and 1 of 8.33: 10.2, 3.8 and 1.9 of 16.
    shares = [bracket.trials for bracket in brackets([3, 2, 1], 400, 16, 4)]
    assert shares == [12, 3, 1]
    # A bracket has at least one trial.
    assert [bracket.trials for bracket in brackets([3, 2, 1], 400, 2, 4)] == [1, 1, 1]


def test_trials_are_dealt_to_the_bracket_that_has_most_of_its_share_left() -> None:
    dealt = [0, 0]
    order = []
    for _ in range(8):
        place = next_bracket([6, 2], dealt)
        dealt[place] += 1
        order.append(place)
    assert dealt == [6, 2]
    assert order == [0, 1, 0, 0, 0, 1, 0, 0]


# (trial, loss, goes on): in the order in which they come to the lowest rung, divisor 4.
TABLE = [
    (0, 5.0, True),  # alone: the best
    (1, 6.0, False),
    (2, 4.0, True),  # the best so far
    (3, 4.5, False),  # of 4 the best one
    (4, 3.0, True),
    (5, 3.5, False),  # of 6 still one
    (6, 9.0, False),
    (7, 3.5, True),  # of 8 the best two: a tie comes before
    (8, 3.4, True),
    (9, math.nan, False),
    (10, 3.0, True),  # as good as the best
    (11, 3.2, True),  # of 12 the best three: 3.0, 3.0, 3.2
    (12, 3.3, False),
]


def test_who_goes_on_is_as_in_the_table() -> None:
    rungs = Rungs((25, 100, 400), 4)
    assert [rungs.insert(trial, 0, loss) for trial, loss, _ in TABLE] == [row[2] for row in TABLE]
    assert [trial for _, trial in rungs.ranked[0]][:5] == [10, 4, 11, 12, 8]


def test_a_trial_that_failed_ranks_last_and_counts() -> None:
    rungs = Rungs((25, 100), 4)
    rungs.insert(0, 0, math.inf)
    assert rungs.insert(1, 0, 1e300)
    for trial in range(2, 7):
        rungs.insert(trial, 0, math.inf)
    # Eight have come with this one: two go on.
    assert rungs.insert(7, 0, math.inf) is False
    assert rungs.insert(8, 0, 1e301)
    assert [trial for _, trial in rungs.ranked[0]][:2] == [1, 8]


def test_a_trial_that_is_invalid_leaves_no_trace() -> None:
    with_it, without = Rungs((25, 100), 4), Rungs((25, 100), 4)
    with_it.insert(0, 0, 1.0)
    with_it.remove(0)
    for trial, loss, _ in TABLE:
        assert with_it.insert(trial, 0, loss) == without.insert(trial, 0, loss)


def test_nobody_goes_on_from_the_last_rung() -> None:
    rungs = Rungs((25, 100), 4)
    assert not rungs.insert(0, 1, 0.0)
    assert not Rungs((7,), 4).insert(0, 0, 0.0)


def test_a_first_value_that_is_not_finite_does_not_go_on() -> None:
    assert not Rungs((25, 100), 4).insert(0, 0, math.nan)
    assert not Rungs((25, 100), 4).insert(0, 0, math.inf)
