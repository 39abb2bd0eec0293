"""How much each hyperparameter matters, by fANOVA, and how sure that is.

Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter Importance", ICML: trees are
grown on what the trials were, and the variance of what the trees say over the whole space is shared
out.  What a share would be if the metric had nothing to do with the hyperparameters is found by
shuffling: with few trials that is much.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t2t_torch.report.section import counted, number
from t2t_torch.tune.evidence import common_step, value_at
from t2t_torch.tune.forest import Axis, Floats, Integers, shares
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, TrialRecord
from t2t_torch.tune.space import Value

LEAST_TRIALS = 8
"""With fewer, trees have next to nothing to be grown on."""

_TREES = 32
_SHUFFLES = 20
_CHANCE = 95  # the percentile of the shuffled shares that counts as chance
_PER_NAME = 10  # trials for each hyperparameter from which on shares are more than a hint


@dataclass(frozen=True)
class Share:
    """How much one hyperparameter matters.

    Attributes:
      name: of the hyperparameter.
      share: of the variance of the metric's ranks that it explains alone, from 0 to 1.
      chance: what one of these would come to if the metric were shuffled; smaller shares say
        nothing.
    """

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Importance:
    """What is known of how much the hyperparameters matter.

    Attributes:
      shares: the largest first; empty if too little is known.
      step: at which the trials were compared.
      told: how much that is worth, in a sentence.
    """

    shares: tuple[Share, ...]
    step: int | None
    told: str


def importance_of(record: SearchRecord) -> Importance:
    """Finds how much each hyperparameter matters, at the newest step that most trials reached.

    Ranks are explained, not values: one diverged trial would else be all there is to see.  A trial
    whose value was not finite there ranks last; failed ones are left out.
    """
    space = [axis for axis in record.space if axis.kind != "const"]
    kept = [one for one in record.trials if one.state != "failed" and _has_all(one, space)]
    step = common_step(kept)
    kept = [one for one in kept if any(step == measured for measured, _ in one.curve)]
    if len(kept) < LEAST_TRIALS or step is None or not space:
        told = f"{counted(len(kept), 'trial')} can be compared; from {LEAST_TRIALS} on this says"
        return Importance((), step, f"{told} how much each hyperparameter matters.")
    losses = [record.loss_of(value_at(one, step)) for one in kept]
    ranks = _ranks(losses)
    if ranks.std() == 0:
        return Importance((), step, f"All trials have the same value at step {step:,}.")
    columns = [_cells([one.hparams[axis.name] for one in kept], axis) for axis in space]
    cells = np.stack([column for column, _ in columns], axis=1)
    axes = [axis for _, axis in columns]
    rng = np.random.default_rng(record.seed)
    found = shares(cells, ranks, axes, rng, _TREES)
    by_chance = np.array(
        [shares(cells, rng.permutation(ranks), axes, rng, _TREES // 4) for _ in range(_SHUFFLES)]
    )
    chance = np.percentile(by_chance, _CHANCE, axis=0)
    made = [
        Share(axis.name, float(share), float(often))
        for axis, share, often in zip(space, found, chance, strict=True)
    ]
    made.sort(key=lambda one: -one.share)
    return Importance(tuple(made), step, _told(len(kept), made, step, record.metric))


def _told(trials: int, made: Sequence[Share], step: int, metric: str) -> str:
    names = counted(len(made), "hyperparameter")
    above = sum(one.share > one.chance for one in made)
    base = f"{counted(trials, 'trial')} for {names}, ranked by {metric} at step {number(step)}: "
    if not above:
        return f"{base}no share is above what chance alone gives. More trials would tell more."
    if trials < _PER_NAME * len(made):
        return f"{base}a hint, not a measurement."
    return f"{base}a share above its mark would come by chance in one search in twenty."


def _has_all(trial: TrialRecord, space: Sequence[SpaceAxis]) -> bool:
    return all(axis.name in trial.hparams for axis in space)


def _ranks(losses: Sequence[float]) -> Floats:
    """Returns ranks from 0 to 1; equal losses share theirs."""
    ordered = sorted(losses)
    first = {loss: place for place, loss in reversed(list(enumerate(ordered)))}
    last = {loss: place for place, loss in enumerate(ordered)}
    return np.array([(first[loss] + last[loss]) / 2 for loss in losses]) / (len(losses) - 1)


def _cells(values: Sequence[Value], axis: SpaceAxis) -> tuple[Integers, Axis]:
    """Cuts an axis into cells, one for each value that was tried.

    Returns:
      [trials], the cells in which they lie; the axis.
    """
    if axis.low is None or axis.high is None:
        known = list(dict.fromkeys([*map(repr, axis.values), *map(repr, values)]))
        of_numbers = all(type(value) in (int, float) for value in (*axis.values, *values))
        if of_numbers:
            known.sort(key=float)
        cells = np.array([known.index(repr(value)) for value in values])
        return cells, Axis(np.full(len(known), 1 / len(known)), of_numbers)
    places = [_place(value, axis) for value in values]
    tried = sorted(set(places))
    between = [(one + other) / 2 for one, other in itertools.pairwise(tried)]
    weights = np.diff(np.array([0.0, *between, 1.0]))
    return np.array([tried.index(place) for place in places]), Axis(weights, True)


def _place(value: Value, axis: SpaceAxis) -> float:
    """Returns where a value lies in its range, from 0 to 1; one beside it counts as its end."""
    assert axis.low is not None and axis.high is not None
    if isinstance(value, str | None) or axis.low == axis.high:
        return 0.5
    low, high, here = axis.low, axis.high, float(value)
    if axis.log and low > 0:
        low, high, here = math.log(low), math.log(high), math.log(max(here, axis.low))
    return min(max((here - low) / (high - low), 0.0), 1.0)
