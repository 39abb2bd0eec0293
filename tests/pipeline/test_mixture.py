"""Which problem each batch of a mixture is of."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.features import Features, Text
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.loader import MixedBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.training_split import MixedPlan, TrainingSplit
from t2t_torch.problem_types.mixture import MixingSchedule
from t2t_torch.text.encoder import IntegerEncoder

TEXT = Text(IntegerEncoder(2200))
FEATURES = Features({"inputs": TEXT}, {"targets": TEXT})


def shares(text, steps, problems=2):
    return MixingSchedule.parse(text, problems).at(np.asarray(steps)).tolist()


def located(plan, count, start=0):
    return [plan.locate(k) for k in range(start, start + count)]


def plan(text="step @0 .7 .3", seed=5, batches_per_step=1, problems=2):
    schedule = MixingSchedule.parse(text, problems)
    return MixedPlan(schedule, seed=seed, batches_per_step=batches_per_step)


def test_step_holds_the_shares_from_one_given_step_to_the_next():
    found = shares("step @0 0.7 0.3 @10 1 0", [0, 9, 10, 10**9])
    np.testing.assert_allclose(found, [[0.7, 0.3], [0.7, 0.3], [1, 0], [1, 0]])


def test_linear_goes_from_one_to_the_next_and_stays_at_the_last():
    found = shares("linear @0 1 0 @100 0 1", [0, 25, 100, 1000])
    np.testing.assert_allclose(found, [[1, 0], [0.75, 0.25], [0, 1], [0, 1]])


def test_before_the_first_given_step_its_shares_hold():
    for kind in ("step", "linear"):
        np.testing.assert_allclose(shares(f"{kind} @10 1 3 @20 1 0", [0, 10]), [[0.25, 0.75]] * 2)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", 1, "'' is neither step, linear, exponential, round_robin"),
        ("round_robin 1", 2, "'1' follows round_robin, which stands alone"),
        ("0.5 x", 2, "'x' is no share"),
        ("1 1 1", 3, "3 shares for 2 problems"),
        ("steps @0 1 1", 1, "'steps' is neither"),
        ("step 1 1", 2, "'1' comes before any @STEP"),
        ("step", 1, "there is no @STEP"),
        ("step @x 1 1", 2, "'@x' is no step"),
        ("step @0 1 1 @0 1 1", 5, "step 0 does not come after step 0"),
        ("step @0 1 a", 4, "'a' is no share"),
        ("step @0 1 -1", 4, "'-1' is no share"),
        ("step @0 nan 1", 3, "'nan' is no share"),
        ("step @0 1 1 1", 5, "3 shares for 2 problems"),
        ("step @0 1 @5 1 1", 3, "1 shares for 2 problems"),
        ("linear @0 0 0", 4, "no problem has a share"),
        ("step @0 1e308 1e308", 4, "the shares are so large"),
        ("step @0 1e999 1", 3, "'1e999' is no share"),
        ("step @0 1_0 1", 3, "'1_0' is no share"),
        ("step @0 +1 1", 3, "'+1' is no share"),
        ("step @0 \u0661 1", 3, "'\u0661' is no share"),
        ("step @\u0661 1 1", 2, "'@\u0661' is no step"),
    ],
)
def test_a_malformed_schedule_is_refused_at_its_place(text, place, why):
    with pytest.raises(DataError, match=re.escape(f"word {place}: {why}")):
        MixingSchedule.parse(text, 2)


def test_shares_alone_hold_for_all_steps():
    assert MixingSchedule.parse("3 1", 2) == MixingSchedule.parse("step @0 0.75 0.25", 2)


def test_problems_in_turn_come_one_after_another_whatever_came_before():
    in_turn = plan("round_robin", problems=3, batches_per_step=2)
    assert located(in_turn, 6) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert in_turn.locate(3_000_001) == (1, 1_000_000)
    assert str(in_turn.schedule) == "round_robin"


def test_shares_by_size_are_those_of_the_batches():
    schedule = MixingSchedule.parse("by_size", 2)
    assert schedule.of_sizes([30, 10]) == MixingSchedule.parse("3 1", 2)
    given = MixingSchedule.parse("1 1", 2)
    assert given.of_sizes([30, 10]) is given


def test_a_schedule_reads_as_it_is_written():
    schedule = MixingSchedule.parse("linear @0 2 2 @5 0 1", 2)
    assert str(schedule) == "linear @0 0.5 0.5 @5 0 1"
    assert MixingSchedule.parse(str(schedule), 2) == schedule


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=4).filter(any), st.integers(0, 2**63))
def test_the_shares_of_the_batches_are_those_of_the_schedule(weights, seed):
    text = f"step @0 {' '.join(map(str, weights))}"
    count = 6000
    found = [p for p, _ in located(plan(text, seed, problems=len(weights)), count)]
    expected = np.asarray(weights) / sum(weights)
    counts = np.bincount(found, minlength=len(weights))
    deviation = np.sqrt(count * expected * (1 - expected))
    assert (np.abs(counts - count * expected) <= 6 * deviation).all()


def test_the_shares_follow_a_linear_schedule():
    steps = 20_000
    found = [p for p, _ in located(plan(f"linear @0 1 0 @{steps} 0 1"), steps)]
    quarters = [np.mean(part) for part in np.array_split(found, 4)]
    np.testing.assert_allclose(quarters, [0.125, 0.375, 0.625, 0.875], atol=0.03)


def test_the_batches_of_each_problem_come_in_its_own_order_without_a_gap():
    numbers = {0: [], 1: [], 2: []}
    for problem, number in located(plan("step @0 1 2 3", problems=3), 9000):
        numbers[problem].append(number)
    assert all(found == list(range(len(found))) for found in numbers.values())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20_000), st.integers(0, 2**64 - 1))
def test_a_batch_is_found_without_those_before_it(start, seed):
    whole = plan("linear @0 1 1 @9000 1 9", seed)
    whole.locate(20_050)
    assert plan("linear @0 1 1 @9000 1 9", seed).locate(start) == whole.locate(start)


def test_the_schedule_goes_by_steps_and_not_by_batches():
    found = [p for p, _ in located(plan("step @0 1 0 @10 0 1", batches_per_step=4), 80)]
    assert found == [0] * 40 + [1] * 40


@pytest.fixture(scope="module")
def mixed(make_shards):
    """Makes the batches of two problems; the first ids tell which."""
    rng = np.random.default_rng(0)
    parts = []
    for first in (2, 1002):
        rows = [
            {"inputs": rng.integers(2, 9, rng.integers(1, 9)), "targets": np.asarray([first + i])}
            for i in range(300)
        ]
        parts.append(make_shards(rows))

    def make(text="step @0 .7 .3", batches_per_step=6, hparams="", **where):
        chosen = basic_params1().replace(batch_size=64, max_length=32).parse(hparams)
        batching = Batching(chosen, means_tokens=True, max_length=32)
        components = [TrainingSplit.of(part, FEATURES, batching, seed=1) for part in parts]
        schedule = MixingSchedule.parse(text, 2)
        return MixedBatches(
            components, schedule, seed=1, batches_per_step=batches_per_step, **where
        )

    return make


def take(batches, count):
    return [batch["targets"][:, 0].tolist() for batch in itertools.islice(batches, count)]


def test_every_batch_is_wholly_of_one_problem(mixed):
    kinds = [{ids >= 1002 for ids in batch} for batch in take(mixed(), 120)]
    assert all(len(kind) == 1 for kind in kinds)
    assert 20 < sum(kind == {True} for kind in kinds) < 55


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_order_is_the_same_from_anywhere_on_any_number_of_processes(mixed, data):
    whole = take(mixed(), 90)
    world_size = data.draw(st.sampled_from([1, 2, 3, 6]))
    start = data.draw(st.integers(0, 40))
    count = (90 - start) // world_size
    ranks = [
        take(mixed(start=start, rank=rank, world_size=world_size), count)
        for rank in range(world_size)
    ]
    found = [ranks[k % world_size][k // world_size] for k in range(count * world_size)]
    assert found == whole[start : start + count * world_size]


def test_each_problem_gives_all_its_rows_before_any_again(mixed):
    batches = mixed()
    per_epoch = batches.components[0].report.batches
    firsts = [batch for batch in take(batches, 500) if batch[0] < 1002][:per_epoch]
    assert sorted(itertools.chain.from_iterable(firsts)) == list(range(2, 302))


def test_the_fingerprint_knows_schedule_step_and_data(mixed):
    prints = [
        mixed(),
        mixed("step @0 .6 .4"),
        mixed(batches_per_step=5),
        mixed(hparams="batch_size=80"),
    ]
    assert len({found.plan_fingerprint for found in prints}) == 4
    assert mixed().plan_fingerprint == mixed().plan_fingerprint


def test_the_report_is_of_all_problems_together(mixed):
    batches = mixed()
    reports = [component.report for component in batches.components]
    assert batches.report.kept == 600
    assert batches.report.batches == sum(report.batches for report in reports)
    shares = zip((0.7, 0.3), reports, strict=True)
    expected = sum(share * report.tokens / report.batches for share, report in shares)
    assert batches.report.tokens_per_batch == pytest.approx(expected)
    assert reports[0].tokens_per_batch == reports[0].tokens / reports[0].batches
    low, high = sorted(report.padding_fraction for report in reports)
    assert low <= batches.report.padding_fraction <= high


def test_packed_problems_are_mixed_too(mixed):
    batch = next(iter(mixed(hparams="pack_dataset=true")))
    assert torch.equal(batch["targets_segmentation"] > 0, batch["targets"] > 0)
