"""Suggestions where others were good: a tree-structured Parzen estimator, optuna's.

Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization".  The sampler is made anew for
each trial, seeded by its number, and is told what is known at that moment: with one trial at a time
the same search comes to the same trials.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_torch.tune.optuna_extra import optuna_module
from t2t_torch.tune.search_plan import SearchPlan
from t2t_torch.tune.space import Categorical, Double, Integer, Kind, LogDouble, Space, Value
from t2t_torch.tune.suggestions import Drawn, Tried, key

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_LEAST_DRAWN = 3


class TreeParzen:
    """Suggests by what the finished trials have reached; the first ones are drawn.

    Args:
      plan: of the search; a fourth of its trials, from 3 to 10, is drawn.
      space: what is searched.
    """

    def __init__(self, plan: SearchPlan, space: Space) -> None:
        self._seed = plan.seed
        self._space = space
        self._startup = min(max(plan.max_trials // 4, _LEAST_DRAWN), 10)
        self._drawn = Drawn(space, plan.seed)

    def suggest(self, number: int, tried: Sequence[Tried]) -> dict[str, Value] | None:
        """Returns what promises most, not tried yet."""
        told = [one for one in tried if one.loss is not None]
        known = [one for one in told if one.loss is not None and math.isfinite(one.loss)]
        if len(known) < self._startup or not self._space.searched:
            return self._drawn.suggest(number, tried)
        values = self._asked(number, told)
        taken = {key(one.hparams) for one in tried}
        return self._drawn.suggest(number, tried) if key(values) in taken else values

    def _asked(self, number: int, told: Sequence[Tried]) -> dict[str, Value]:
        optuna = optuna_module()
        seed = random.Random(f"{self._seed}/{number}/tpe").getrandbits(32)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=self._startup)
        study = optuna.create_study(sampler=sampler)
        axes = {name: distribution(kind) for name, kind in self._space.searched.items()}
        worst = max(one.loss for one in told if one.loss is not None and math.isfinite(one.loss))
        for one in told:
            assert one.loss is not None
            inside = {
                name: to_axis(self._space.kinds[name], one.hparams[name])
                for name in axes
                if name in one.hparams and _is_inside(self._space.kinds[name], one.hparams[name])
            }
            # What failed counts as the worst that was seen.
            value = one.loss if math.isfinite(one.loss) else worst
            study.add_trial(
                optuna.trial.create_trial(
                    params=inside, distributions={name: axes[name] for name in inside}, value=value
                )
            )
        params = study.ask(fixed_distributions=axes).params
        fixed = self._space.sample(random.Random(0))
        return {
            name: from_axis(kind, params[name]) if name in axes else fixed[name]
            for name, kind in self._space.kinds.items()
        }


def distribution(kind: Kind) -> BaseDistribution:
    """Returns what optuna draws from for a kind; see `to_axis`."""
    found = optuna_module().distributions
    made: Any
    if isinstance(kind, Categorical):
        made = found.CategoricalDistribution(range(len(kind.values)))
    elif isinstance(kind, Integer):
        made = found.IntDistribution(kind.low, kind.high, log=kind.log or kind.reverse)
    elif isinstance(kind, LogDouble):
        ends = sorted((kind.base**kind.low, kind.base**kind.high))
        made = found.FloatDistribution(*ends, log=True)
    else:
        assert isinstance(kind, Double)
        made = found.FloatDistribution(kind.low, kind.high, log=kind.log or kind.reverse)
    return made  # type: ignore[no-any-return]


def to_axis(kind: Kind, value: Value) -> Any:
    """Returns a value as optuna knows it: of a choice its place, of a reversed range its mirror."""
    if isinstance(kind, Categorical):
        return next(place for place, one in enumerate(kind.values) if same(one, value))
    if isinstance(kind, Integer | Double) and kind.reverse:
        return kind.low + kind.high - value
    return value


def from_axis(kind: Kind, value: Any) -> Value:
    """Returns what `to_axis` has turned, turned back."""
    if isinstance(kind, Categorical):
        return kind.values[value]
    if isinstance(kind, Integer | Double) and kind.reverse:
        return kind.low + kind.high - value
    return value


def same(one: Value, other: Value) -> bool:
    """Whether two choices are the same; True is not 1."""
    return type(one) is type(other) and bool(one == other)


def _is_inside(kind: Kind, value: Value) -> bool:
    """Whether a value, which may be the unchanged set's, is one of a kind's."""
    if isinstance(kind, Categorical):
        return any(same(one, value) for one in kind.values)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(kind, LogDouble):
        low, high = sorted((kind.base**kind.low, kind.base**kind.high))
        return bool(low <= value <= high)
    assert isinstance(kind, Integer | Double)
    return bool(kind.low <= value <= kind.high)


def axes_of(space: Space, hparams: Mapping[str, Value]) -> dict[str, tuple[Any, BaseDistribution]]:
    """Returns what optuna is told of a trial: by name its value and what it was drawn from."""
    return {
        name: (to_axis(kind, hparams[name]), distribution(kind))
        for name, kind in space.searched.items()
        if name in hparams and _is_inside(kind, hparams[name])
    }
