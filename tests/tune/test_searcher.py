"""Searches that are simulated: every decision, and nothing but decisions."""

from __future__ import annotations

import collections
import random

import pytest
from simulated import SPACE, Simulation, plan, simulated

from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.search_space import Categorical, Constant, Double, Integer, LogDouble, Space
from t2t_torch.tune.shared_search import SearchState, SearchTask, key
from t2t_torch.workflows.search_settings import SearchSettings


def loss(task: SearchTask) -> float:
    """The less x, the better; more so with more steps."""
    return task.hparams["x"] + 1 / task.to


def outline(searcher: SearchState) -> list[tuple]:
    return [(one.status, one.target, one.bracket, one.value) for one in searcher.trials]


def test_asha_follows_the_table_of_its_rungs() -> None:
    # One bracket of 25, 100, 400; trials come one after another, each with the loss of its number.
    losses = [5.0, 6.0, 4.0, 4.5, 3.0, 3.5, 9.0, 3.6, 2.0, 1.0, 7.0, 1.5, 8.0, 8.1, 8.2, 8.3]
    result = simulated(lambda task: losses[task.trial], searcher="asha")
    reached = [trial.step for trial in result.searcher.trials]
    # At 25: 0, 2, 4 are the best so far; 8, 9 too; 11 is the second of 12 (three go on).
    # At 100 come 0, 2, 4, 8, 9, 11: all but the last are the best so far, it is the second of 6.
    assert reached == [400, 25, 400, 25, 400, 25, 25, 25, 400, 400, 25, 100, 25, 25, 25, 25]
    statuses = collections.Counter(trial.status for trial in result.searcher.trials)
    assert statuses == {"completed": 5, "stopped": 11}
    assert result.searcher.is_over


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_a_search_read_again_from_any_event_goes_on_as_it_did(parallel: int) -> None:
    whole = simulated(loss, parallel)
    for cut in range(0, len(whole.events), 7):
        again = SearchState(plan(), SPACE)
        assert all(again.apply(event) for event in whole.events[:cut])
        if parallel > 1:
            continue
        rest = Simulation(again, loss)
        for trial in again.trials:  # its tuner was killed
            if trial.status == "held":
                assert rest.add(do="lost", trial=trial.number, holder="t")
        rest.run()
        assert outline(again) == outline(whole.searcher)
    again = SearchState(plan(), SPACE)
    for event in whole.events:
        again.apply(event)
    assert outline(again) == outline(whole.searcher)


def test_the_same_sets_are_tried_however_many_train_at_once() -> None:
    one, four = simulated(loss).searcher, simulated(loss, 4).searcher
    assert [trial.hparams for trial in one.trials] == [trial.hparams for trial in four.trials]


def test_a_trial_that_raises_ranks_last_and_stops_nothing() -> None:
    result = simulated(lambda task: "fail" if task.trial in (0, 3) else loss(task)).searcher
    assert [trial.status for trial in result.trials].count("failed") == 2
    assert len(result.trials) == 16
    assert result.rungs[0].ranked[0][-1][1] in (0, 3)
    assert any(trial.status == "completed" for trial in result.trials)


def test_a_trial_that_is_invalid_is_replaced_in_its_bracket() -> None:
    bad = {1, 5, 6}
    result = simulated(lambda task: "invalid" if task.trial in bad else loss(task)).searcher
    assert len(result.trials) == 16 + 3
    assert len(result.valid) == 16
    plain = simulated(loss).searcher
    shares = collections.Counter(trial.bracket for trial in plain.trials)
    assert collections.Counter(trial.bracket for trial in result.valid) == shares
    assert not any(trial in bad for _, trial in result.rungs[0].ranked[0])


def test_a_search_of_which_all_is_invalid_ends() -> None:
    result = simulated(lambda task: "invalid").searcher
    assert result.is_over
    assert result.gave_up
    assert "it gave up at 0 of 16 trials: 40 others had hyperparameters" in result.why_early
    assert len(result.trials) == 2 * 16 + 8


def test_a_value_that_is_not_finite_goes_no_further() -> None:
    result = simulated(lambda task: None if task.trial % 2 else loss(task)).searcher
    odd = [trial for trial in result.trials if trial.number % 2]
    assert {trial.status for trial in odd} == {"stopped"}
    assert all(trial.value is None for trial in odd)


def test_more_is_better_where_the_metric_says_so() -> None:
    result = simulated(lambda task: -loss(task), lower_is_better=False).searcher
    assert outline(result)[0][0] == outline(simulated(loss).searcher)[0][0]
    assert [t.step for t in result.trials] == [t.step for t in simulated(loss).searcher.trials]


def test_the_unchanged_set_comes_first_and_is_never_stopped() -> None:
    result = simulated(lambda task: 99.0 if task.is_default else loss(task), 3, default={"x": 0.5})
    first = result.searcher.trials[0]
    assert first.is_default
    assert first.hparams == {"x": 0.5}
    assert (first.status, first.step) == ("completed", 400)
    assert len(result.searcher.trials) == 16


def test_random_trains_all_to_the_end() -> None:
    result = simulated(loss, 2, searcher="random", max_trials=5).searcher
    assert [trial.step for trial in result.trials] == [400] * 5
    assert len({key(trial.hparams) for trial in result.trials}) == 5
    assert not result.why_early


def test_a_grid_has_each_combination_once_after_the_unchanged_set() -> None:
    space = Space({"a": Integer(1, 3, 3), "b": Categorical(("x", "y"))})
    searcher = SearchState(plan(searcher="grid", max_trials=7, default={"a": 9, "b": "z"}), space)
    Simulation(searcher, lambda task: 1.0).run()
    tried = [trial.hparams for trial in searcher.trials]
    assert tried == [{"a": 9, "b": "z"}, *space.grid()]


def test_what_was_tried_is_not_drawn_again_and_a_space_may_be_exhausted() -> None:
    space = Space({"a": Categorical((1, 2, 3)), "b": Constant(7)})
    searcher = SearchState(plan(searcher="random", default={"a": 2, "b": 7}), space)
    Simulation(searcher, lambda task: 1.0).run()
    assert sorted(trial.hparams["a"] for trial in searcher.trials) == [1, 2, 3]
    assert searcher.is_over
    assert "it ended at 3 of 16 trials: all that the ranges allow" in searcher.why_early


def test_tpe_finds_what_drawing_does_not() -> None:
    pytest.importorskip("optuna")
    space = Space(
        {
            "x": Double(0.0, 1.0),
            "y": LogDouble(-4, 0),
            "n": Integer(1, 64, log=True),
            "r": Double(1.0, 10.0, reverse=True),
            "c": Categorical(([1], "b", True)),
            "k": Constant(3),
        }
    )

    def value(task: SearchTask) -> float:
        h = task.hparams
        return (h["x"] - 0.3) ** 2 + abs(h["n"] - 8) / 64 + (h["c"] != "b") + abs(h["r"] - 9) / 9

    def best(searcher: str) -> float:
        result = SearchState(plan(searcher=searcher, max_trials=40, seed=3), space)
        Simulation(result, value).run()
        assert all(trial.hparams["k"] == 3 for trial in result.trials)
        return min(trial.value for trial in result.trials)

    assert best("tpe") < best("random")
    assert best("tpe") == best("tpe")


def test_void_events_change_nothing() -> None:
    searcher = SearchState(plan(), SPACE)
    mine = {"tuner": "a", "place": "p"}
    take = {"do": "take", "trial": 0, "to": 25, "hparams": {"x": 0.1}, **mine}
    assert searcher.apply(take)
    report = {"do": "report", "trial": 0, "step": 25, "value": 1.0, "curve": []}
    before = outline(searcher)
    for event in (
        take,  # twice
        {**take, "trial": 7},  # not the next one
        {**report, "tuner": "b"},  # of one who does not hold it
        {**report, "step": 24, **mine},  # not at its rung
        {"do": "lost", "trial": 0, "holder": "b", "tuner": "c"},
        {"do": "dance", "trial": 0, **mine},
        {"do": "report", "trial": 9, "tuner": "a"},
        {"do": "begin"},
    ):
        assert not searcher.apply(event), event
    assert outline(searcher) == before
    assert searcher.apply({"do": "lost", "trial": 0, "holder": "a", "tuner": "c"})
    assert not searcher.apply({**report, **mine})  # it was thought dead, and comes late
    assert searcher.apply({**take, "tuner": "b"})
    assert searcher.apply({**report, "tuner": "b"})


def test_what_was_interrupted_goes_on_before_something_new_begins() -> None:
    simulation = Simulation(SearchState(plan(), SPACE), loss)
    searcher = simulation.searcher
    task = searcher.next_task(lambda trial: True)
    simulation.add(do="take", trial=0, to=task.to, hparams=task.hparams)
    simulation.add(do="leave", trial=0, step=7, curve=[], seconds=3.0)
    again = searcher.next_task(lambda trial: True)
    assert (again.trial, again.to, again.is_new) == (0, task.to, False)
    # Who has not its checkpoint begins another one.
    assert searcher.next_task(lambda trial: False).trial == 1
    assert searcher.trials[0].seconds == 3.0


def test_no_more_train_at_once_than_the_search_allows() -> None:
    searcher = SearchState(plan(max_concurrent=2), SPACE)
    simulation = Simulation(searcher, loss)
    for number in range(2):
        task = searcher.next_task(lambda trial: True)
        simulation.add(do="take", trial=number, to=task.to, hparams=task.hparams)
    assert searcher.next_task(lambda trial: True) is None
    assert not searcher.is_over
    # Of two that ask at the same moment, too.
    assert not simulation.add(do="take", trial=2, to=task.to, hparams={"x": 0.25})
    simulation.add(do="leave", trial=0, step=7, curve=[])
    assert simulation.add(do="take", trial=0, to=searcher.trials[0].target)
    assert not simulation.add(do="take", trial=2, to=task.to, hparams={"x": 0.25})


def test_restarts_are_counted_and_held_on_to() -> None:
    simulation = Simulation(SearchState(plan(), SPACE), loss)
    task = simulation.searcher.next_task(lambda trial: True)
    simulation.add(do="take", trial=0, to=task.to, hparams=task.hparams)
    restart = {"do": "restart", "trial": 0, "step": 3, "why": "exit code -9", "seconds": 1.0}
    assert simulation.add(**restart, restart=1)
    assert not simulation.add(**restart, restart=1)  # the same, written twice
    assert simulation.add(**restart, restart=2)
    assert simulation.searcher.trials[0].restarts == 2
    assert simulation.searcher.trials[0].seconds == 2.0
    assert simulation.searcher.trials[0].status == "held"


def test_asha_saves_most_of_the_work_and_keeps_the_best() -> None:
    rng = random.Random(0)
    quality = [rng.random() for _ in range(64)]
    result = simulated(
        lambda task: quality[task.trial] + 1 / task.to, searcher="asha", max_trials=64
    ).searcher
    assert sum(trial.step for trial in result.trials) < 0.5 * 64 * 400
    best = min(
        (one for one in result.trials if one.status == "completed"), key=lambda one: one.value
    )
    assert best.number == quality.index(min(quality))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"divisor": 1.0}, "divisor is 1; more than 1"),
        ({"bracket_rungs": (0,)}, "each is at least 1"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(**changes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_trials": 0}, "max_trials=0: should be at least 1"),
        ({"train_steps": 0}, "train_steps=0: should be at least 1"),
        ({"max_rungs": 0}, "max_rungs=0: should be at least 1"),
        ({"mode": "bold"}, "should be 'aggressive' or 'standard'"),
        ({"searcher": "hyperband"}, "should be 'adaptive_asha' or"),
    ],
)
def test_settings_of_no_search_are_refused(given: dict, message: str) -> None:
    with pytest.raises(HParamsError, match=message):
        SearchSettings(**given)
