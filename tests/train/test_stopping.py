"""When a run ends early and when its rate falls, as functions of the state and a number."""

from __future__ import annotations

import math

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.run.checkpoint import TrainerState
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.stopping import (
    Watched,
    after_evaluation,
    full_name,
    short_name,
    stop_reason,
    with_mean,
)

LOSS = Watched("loss", less_is_better=True)
ACCURACY = Watched("accuracy", less_is_better=False)


def seen(values, config, watched=LOSS, every=10):
    """The state after evaluations of these values, one each `every` steps."""
    state = TrainerState()
    for number, value in enumerate(values, start=1):
        state = state.model_copy(update={"step": number * every})
        state = after_evaluation(state, watched, value, config)
    return state


def test_a_run_stops_when_so_many_steps_brought_no_improvement():
    config = RunConfig(eval_early_stopping_steps=20, eval_early_stopping_metric_delta=0.1)
    values = [5.0, 4.0, 3.95, 3.91]
    assert stop_reason(seen(values[:3], config), config) == ""
    state = seen(values, config)
    assert (state.best_value, state.best_step, state.bad_evaluations) == (4.0, 20, 2)
    text = "has not improved by 0.1 since step 20 (best 4), in 2 evaluations"
    assert text in stop_reason(state, config)


def test_an_equal_value_improves_by_a_loss_that_is_lower_by_a_tenth():
    config = RunConfig(eval_patience=2, eval_early_stopping_metric="accuracy")
    state, steps = TrainerState(), []
    for step, loss in enumerate([0.239, 0.1, 0.095, 0.0186, 0.018, 0.0179], start=1):
        state = state.model_copy(update={"step": step})
        state = after_evaluation(state, ACCURACY, 1.0, config, loss)
        steps.append(state.best_step)
    assert steps == [1, 2, 2, 4, 4, 4]
    assert stop_reason(state, config)


@pytest.mark.parametrize("losses", [(math.nan, 0.1), (0.2, math.nan), (0.1, 0.2)])
def test_an_equal_value_without_a_lower_loss_is_no_improvement(losses):
    config = RunConfig(eval_early_stopping_metric="accuracy")
    state = after_evaluation(TrainerState(step=1), ACCURACY, 1.0, config, losses[0])
    state = state.model_copy(update={"step": 2})
    assert after_evaluation(state, ACCURACY, 1.0, config, losses[1]).best_step == 1


def test_a_least_improvement_is_not_met_by_a_lower_loss():
    config = RunConfig(eval_early_stopping_metric_delta=0.01)
    state = after_evaluation(TrainerState(step=1), ACCURACY, 1.0, config, 0.5)
    state = state.model_copy(update={"step": 2})
    assert after_evaluation(state, ACCURACY, 1.0, config, 0.1).best_step == 1


def test_small_improvements_add_up_to_a_whole_one():
    config = RunConfig(eval_early_stopping_steps=30, eval_early_stopping_metric_delta=0.1)
    state = seen([4.0, 3.95, 3.9, 3.89], config)
    assert (state.best_value, state.best_step) == (3.9, 30)


def test_more_may_be_better():
    config = RunConfig(eval_early_stopping_steps=10, eval_early_stopping_metric_delta=0.0)
    assert stop_reason(seen([0.1, 0.2, 0.3], config, ACCURACY), config) == ""
    assert stop_reason(seen([0.3, 0.2], config, ACCURACY), config)
    assert stop_reason(seen([0.3, 0.2], config, LOSS), config) == ""


def test_an_equal_value_is_no_improvement_even_without_a_delta():
    config = RunConfig(eval_early_stopping_steps=10, eval_early_stopping_metric_delta=0.0)
    assert stop_reason(seen([0.3, 0.3], config), config)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("watched", [LOSS, ACCURACY])
def test_what_is_not_finite_never_improves(bad, watched):
    config = RunConfig(eval_early_stopping_steps=20, eval_early_stopping_metric_delta=0.0)
    state = seen([bad, 1.0, bad, bad], config, watched)
    assert (state.best_value, state.best_step, state.bad_evaluations) == (1.0, 20, 2)
    assert stop_reason(state, config)
    nothing = seen([bad, bad, bad], config, watched)
    assert "never finite" in stop_reason(nothing, config)
    assert stop_reason(seen([bad, bad], config, watched), config) == ""
    assert TrainerState.model_validate_json(nothing.model_dump_json()) == nothing


def test_without_the_flag_nothing_stops():
    assert stop_reason(seen([1.0] * 50, RunConfig()), RunConfig()) == ""


def test_another_metric_or_direction_is_compared_with_nothing_of_before():
    config = RunConfig(eval_early_stopping_steps=20)
    state = seen([0.1], config, ACCURACY).model_copy(update={"step": 500})
    state = after_evaluation(state, LOSS, 7.0, config)
    assert (state.best_value, state.best_step) == (7.0, 500)


def test_the_rate_falls_after_so_many_evaluations_without_improvement():
    config = RunConfig(
        reduce_lr_on_plateau_factor=0.5,
        reduce_lr_on_plateau_patience=2,
        reduce_lr_on_plateau_threshold=0.1,
    )
    factors = [
        seen([4.0, 3.95, 4.0, 4.0, 4.0, 3.0, 3.0][:count], config).plateau_factor
        for count in range(1, 8)
    ]
    assert factors == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]


def test_the_plateau_has_a_threshold_of_its_own():
    config = RunConfig(
        eval_early_stopping_steps=10,
        eval_early_stopping_metric_delta=1.0,
        reduce_lr_on_plateau_factor=0.5,
        reduce_lr_on_plateau_patience=1,
        reduce_lr_on_plateau_threshold=0.0,
    )
    state = seen([4.0, 3.9], config)
    assert state.plateau_factor == 1.0
    assert stop_reason(state, config)


def test_the_state_that_is_judged_stays_as_it_was():
    before = TrainerState(step=10)
    after_evaluation(before, LOSS, 1.0, RunConfig())
    assert before == TrainerState(step=10)


NAMES = ["loss", "metrics-p/targets/accuracy", "metrics-p/tags/f1", "decode/bleu"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("loss", NAMES[0]),
        ("accuracy", NAMES[1]),
        ("metrics-p/targets/accuracy", NAMES[1]),
        ("tags/f1", NAMES[2]),
        ("bleu", NAMES[3]),
        ("p/accuracy", NAMES[1]),
        ("p/targets/accuracy", NAMES[1]),
        ("p/f1", NAMES[2]),
    ],
)
def test_a_metric_is_named_as_it_is_printed_or_in_full(asked, meant):
    assert full_name(asked, NAMES) == meant
    assert full_name(short_name(meant), NAMES) == meant


def test_a_metric_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(UsageError, match=r"Did you mean accuracy\? They have: accuracy, bleu"):
        full_name("acuracy", NAMES)


@pytest.mark.parametrize("asked", ["q/accuracy", "targets/p/accuracy", "p/bleu"])
def test_a_metric_of_another_problem_or_target_is_refused(asked):
    with pytest.raises(UsageError, match="no such metric"):
        full_name(asked, NAMES)


def waited(values, patience, watched=LOSS):
    """The step of the evaluation of these values, 1, 2 ..., at which the mean begins."""
    state = TrainerState()
    for step, value in enumerate(values, start=1):
        state = TrainerState.model_validate_json(state.model_dump_json())  # as a checkpoint has it
        state = with_mean(state.model_copy(update={"step": step}), watched, value, patience)
    return state.mean_begun


def test_the_mean_begins_when_a_value_is_worse_than_the_best_of_all_but_the_last():
    values = [5.0, 4.0, 4.2, 4.1, 4.05, 3.0]
    assert waited(values, 1) == 4  # 4.1 is worse than 4.0, of which 4.2 is the last
    assert waited(values, 2) == 5  # 4.05 is worse than 4.0
    assert waited(values, 4) == -1


def test_of_a_metric_that_should_be_high_it_begins_at_a_lower_one():
    assert waited([0.5, 0.6, 0.55, 0.59], 1, ACCURACY) == 4
    assert waited([0.5, 0.6, 0.55, 0.61], 1, ACCURACY) == -1


def test_without_patience_nothing_waits_and_nothing_is_kept():
    state = with_mean(TrainerState(step=3), LOSS, 1.0, 0)
    assert state == TrainerState(step=3)


def test_values_of_a_metric_that_was_watched_before_begin_no_mean():
    state = TrainerState()
    for step, (watched, value) in enumerate(
        [(ACCURACY, 0.9), (ACCURACY, 0.8), (LOSS, 5.0), (LOSS, 4.0)], start=1
    ):
        state = after_evaluation(
            state.model_copy(update={"step": step}), watched, value, RunConfig()
        )
        state = with_mean(state, watched, value, 1)
    assert state.mean_begun == -1
    assert state.mean_values == (5.0, 4.0)
