"""When a run ends early, and when its learning rate falls: rules that remember all in the state.

Each is a function of the `TrainerState` and a metric alone, so that a resumed run decides as one
that never stopped.  An evaluation at a step comes after that step's checkpoint: a run that is
resumed from it makes the evaluation again, and comes to the same.
"""

from __future__ import annotations

import collections
import difflib
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch.errors import UsageError

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.train.run_config import RunConfig


def short_name(name: str) -> str:
    """Returns how a metric is told: "accuracy" for "metrics-<problem>/targets/accuracy".

    Those of a target of another name keep it: "tags/accuracy".
    """
    return name.partition("/")[2].removeprefix("targets/") or name


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Returns how each metric is told; of several problems that have the same, with the problem's
    name: "intent_atis/accuracy".
    """
    short = {name: short_name(name) for name in names}
    counts = collections.Counter(short.values())
    return {
        name: told
        if counts[told] == 1
        else name.removeprefix("metrics-").replace("/targets/", "/", 1)
        for name, told in short.items()
    }


def full_name(asked: str, names: Iterable[str]) -> str:
    """Returns the metric that is meant by a name, in full or short.

    Where one name is of one metric alone, its problem may stand before it, too, and its target.

    Raises:
      UsageError: there is none, or there are several.
    """
    known = list(names)
    if asked in known:
        return asked
    meant = [name for name, told in short_names(known).items() if told == asked]
    if not meant and "/" in asked:
        parts = asked.split("/")
        meant = [name for name in known if _has_in_order(name, parts)]
    if len(meant) == 1:
        return meant[0]
    shown = sorted(short_names(known).values())
    near = difflib.get_close_matches(asked, shown, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        f"--eval_early_stopping_metric={asked}: evaluations have no such metric.{hint} They have: "
        f"{', '.join(shown)}."
    )


def _has_in_order(name: str, parts: Sequence[str]) -> bool:
    """Whether a metric's name begins and ends as some parts do and has all of them in order."""
    own = name.removeprefix("metrics-").split("/")
    left = iter(own)
    ends = own[0] == parts[0] and own[-1] == parts[-1]
    return ends and all(part in left for part in parts)


class Watched(NamedTuple):
    """What the rules look at.

    Attributes:
      name: of the metric, in full.
      less_is_better: its better direction.
    """

    name: str
    less_is_better: bool


def after_evaluation(
    state: TrainerState, watched: Watched, value: float, config: RunConfig
) -> TrainerState:
    """Returns the state of a run that has seen the watched metric at its step.

    A value that is not finite is no improvement.  If another metric or direction was watched
    before, the comparison begins anew.

    Args:
      state: before.
      watched: the metric.
      value: of it, at `state.step`.
      config: what counts as an improvement, and what follows from its absence.
    """
    name, less_is_better = watched
    looked_at = f"{'min' if less_is_better else 'max'} {name}"
    known = state.model_copy()
    if looked_at != state.watched:
        known.best_value, known.best_step, known.bad_evaluations = None, -1, 0
        known.plateau_value, known.plateau_bad = None, 0
        known.mean_values = ()
    known.watched, known.evaluated = looked_at, state.step
    delta = config.eval_early_stopping_metric_delta
    if _improves(value, known.best_value, delta, less_is_better=less_is_better):
        known.best_value, known.best_step, known.bad_evaluations = value, state.step, 0
    else:
        known.bad_evaluations += 1
        if known.best_step < 0:  # From here on its steps are counted.
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
    """Returns the state after an evaluation for which the mean of the weights may have waited.

    It begins when a value is worse than the best of all but the last `patience`: the non-monotone
    trigger of Merity et al. 2017, arXiv:1708.02182, algorithm 1.

    Args:
      state: before.
      watched: the metric.
      value: of it, at `state.step`.
      patience: the hparam `swa_patience`; 0: nothing waits.
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
    """Returns why a run ends early, as a sentence; "" if it goes on."""
    patience = config.eval_early_stopping_steps
    if not patience or state.evaluated - state.best_step < patience or state.evaluated < 0:
        return ""
    best = "never finite" if state.best_value is None else f"best {state.best_value:.6g}"
    return (
        f"stopped early: {config.eval_early_stopping_metric} has not improved by "
        f"{config.eval_early_stopping_metric_delta:g} since step {state.best_step} ({best}), in "
        f"{state.bad_evaluations} evaluations; --eval_early_stopping_steps={patience}"
    )


def _improves(value: float, best: float | None, delta: float, *, less_is_better: bool) -> bool:
    """Whether a value is better than the best one by at least `delta`."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    gain = best - value if less_is_better else value - best
    return gain > 0 and gain >= delta
