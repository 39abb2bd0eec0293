"""Early stopping and learning-rate plateaus.

Each rule is a function of the `TrainerState` and a metric alone, so a resumed run makes the same
decisions as an uninterrupted one.  The evaluation at a step follows the checkpoint of that step: a
run resumed from this checkpoint repeats the evaluation with the same result.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from t2t_torch.run.checkpoint import TrainerState
    from t2t_torch.train.run_config import RunConfig


def short_name(name: str) -> str:
    """Returns the short name of a metric: "accuracy" for "metrics-<problem>/targets/accuracy".

    Metrics of a target with another name keep it: "tags/accuracy".
    """
    return name.partition("/")[2].removeprefix("targets/") or name


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the short name of each metric; if several problems share it, with the problem's
    name: "intent_atis/accuracy".
    """
    short = {name: short_name(name) for name in names}
    counts = collections.Counter(short.values())
    return {
        name: short_form
        if counts[short_form] == 1
        else name.removeprefix("metrics-").replace("/targets/", "/", 1)
        for name, short_form in short.items()
    }


def full_name(requested: str, names: Iterable[str]) -> str:
    """Returns the full name of the metric with a full or short name.

    The problem and the target may precede the name of a unique metric.

    Raises:
      UsageError: no metric or several metrics have this name.
    """
    known = list(names)
    if requested in known:
        return requested
    matches = [name for name, short in short_names(known).items() if short == requested]
    if not matches and "/" in requested:
        parts = requested.split("/")
        matches = [name for name in known if _has_in_order(name, parts)]
    if len(matches) == 1:
        return matches[0]
    shown = sorted(short_names(known).values())
    hint = did_you_mean(requested, shown, form="{}")
    raise UsageError(
        f"--eval_early_stopping_metric={requested}: evaluations have no such metric.{hint} They "
        f"have: {', '.join(shown)}."
    )


def _has_in_order(name: str, parts: Sequence[str]) -> bool:
    """True if a metric's name starts and ends like the parts and has all of them in order."""
    own = name.removeprefix("metrics-").split("/")
    left = iter(own)
    ends = own[0] == parts[0] and own[-1] == parts[-1]
    return ends and all(part in left for part in parts)


class Watched(NamedTuple):
    """The monitored metric.

    Attributes:
      name: full name of the metric.
      less_is_better: True if lower values are better.
    """

    name: str
    less_is_better: bool


_LOWER = 0.9  # of losses at equal values of the metric; a smaller step would train for ever


def after_evaluation(
    state: TrainerState, watched: Watched, value: float, config: RunConfig, loss: float = math.nan
) -> TrainerState:
    """Returns the state after an evaluation of the monitored metric.

    A value that is not finite is no improvement.  An equal value with a loss that is lower by a
    tenth is one, unless a least improvement is set: an accuracy of 1 says no more.  If another
    metric or direction was monitored before, the comparison restarts.

    Args:
      state: state before the evaluation.
      watched: the metric.
      value: its value at `state.step`.
      config: criteria for improvement, and the actions if there is none.
      loss: loss at `state.step`; NaN: unknown.
    """
    name, less_is_better = watched
    looked_at = f"{'min' if less_is_better else 'max'} {name}"
    known = state.model_copy()
    if looked_at != state.watched:
        known.best_value, known.best_loss = None, None
        known.best_step, known.bad_evaluations = -1, 0
        known.plateau_value, known.plateau_bad = None, 0
        known.mean_values = ()
    known.watched, known.evaluated = looked_at, state.step
    delta = _least_improvement(config)
    is_surer = (
        value == known.best_value
        and known.best_loss is not None
        and not delta
        and loss < _LOWER * known.best_loss
    )
    if is_surer or _improves(value, known.best_value, delta, less_is_better=less_is_better):
        known.best_value, known.best_loss = value, loss if math.isfinite(loss) else None
        known.best_step, known.bad_evaluations = state.step, 0
    else:
        known.bad_evaluations += 1
        if known.best_step < 0:  # Steps are counted from here on.
            known.best_step = state.step
    threshold = config.reduce_lr_on_plateau_threshold
    if _improves(value, known.plateau_value, threshold, less_is_better=less_is_better):
        known.plateau_value, known.plateau_bad = value, 0
        return known
    known.plateau_bad += 1
    if known.plateau_bad >= config.reduce_lr_on_plateau_patience:
        known.plateau_factor *= config.reduce_lr_on_plateau_factor
        known.plateau_bad = 0
    return known


def with_mean(state: TrainerState, watched: Watched, value: float, patience: int) -> TrainerState:
    """Returns the state after an evaluation that may start the averaging of weights.

    It starts when a value is worse than the best of all but the last `patience` values: the
    non-monotone trigger of Merity et al. 2017, arXiv:1708.02182, algorithm 1.

    Args:
      state: state before the evaluation.
      watched: the metric.
      value: its value at `state.step`.
      patience: the hparam `swa_patience`; 0: disabled.
    """
    if not patience or state.mean_begun >= 0:
        return state
    sign = 1.0 if watched.less_is_better else -1.0
    earlier = [sign * one for one in state.mean_values[:-patience] if math.isfinite(one)]
    known = state.model_copy()
    if earlier and sign * value > min(earlier):
        known.mean_begun, known.mean_values = state.step, ()
    else:
        known.mean_values = (*state.mean_values, value)
    return known


def stop_reason(state: TrainerState, config: RunConfig) -> str:
    """Returns the reason why a run ends early, as a sentence; "" if it continues."""
    steps, evaluations = config.eval_early_stopping_steps, config.eval_patience
    if state.evaluated < 0:
        return ""
    if steps and state.evaluated - state.best_step >= steps:
        rule = f"--eval_early_stopping_steps={steps}"
    elif evaluations and state.bad_evaluations >= evaluations:
        rule = f"--eval_patience={evaluations}"
    else:
        return ""
    best = "never finite" if state.best_value is None else f"best {state.best_value:.6g}"
    delta = _least_improvement(config)
    by = f" by {delta:g}" if delta else ""
    return (
        f"stopped early: {config.eval_early_stopping_metric} has not improved{by} since step "
        f"{state.best_step} ({best}), in {state.bad_evaluations} evaluations; {rule}"
    )


def _least_improvement(config: RunConfig) -> float:
    """Returns the least improvement of the watched metric that counts."""
    if config.eval_early_stopping_metric_delta is not None:
        return config.eval_early_stopping_metric_delta
    return 0.1 if config.eval_early_stopping_metric == "loss" else 0.0


def _improves(value: float, best: float | None, delta: float, *, less_is_better: bool) -> bool:
    """Returns True if a value is better than the best one by at least `delta`."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    gain = best - value if less_is_better else value - best
    return gain > 0 and gain >= delta
