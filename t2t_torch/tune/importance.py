"""Importance of hyperparameters by fANOVA, with its significance.

Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter Importance", ICML: a forest
is fitted to the trials, and the variance of its predictions over the whole space is decomposed.
The shares expected by chance are estimated by shuffling; with few trials they are large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t2t_torch.reports.section import counted, number
from t2t_torch.search_space import AnyValue
from t2t_torch.tune.findings import common_step, value_at
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis

# Forest of regression trees over the cells of a space, in numpy.
#
# An axis is divided into cells, weighted by their part of the range.  A leaf of a tree covers a set
# of cells per axis, so the mean prediction for a cell of one axis is an exact sum over leaves: the
# marginals of Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter Importance",
# ICML, section 4.


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Cells = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Axis:
    """Axis of the space.

    Attributes:
      weights: [cells], weights that sum to 1.
      ordered: whether a split must separate lower from higher cells.
    """

    weights: Floats
    ordered: bool


@dataclass(frozen=True)
class _Leaf:
    value: float
    cells: list[Cells]


def shares(
    cells: Integers, values: Floats, axes: Sequence[Axis], rng: np.random.Generator, trees: int
) -> Floats:
    """Returns the part of the variance over the whole space explained by each axis alone.

    Args:
      cells: [trials, axes], index of each trial's cell.
      values: [trials], values to explain.
      axes: axes of the space.
      rng: generator of the bootstrap samples.
      trees: number of trees; trees that explain nothing count as zeros.

    Returns:
      [axes], means over the trees; their sum is at most 1, the rest belongs to interactions.
    """
    explained = np.zeros((trees, len(axes)))
    least = max(2, len(values) // 24)
    for tree in range(trees):
        drawn = rng.integers(len(values), size=len(values))
        leaves: list[_Leaf] = []
        whole = [np.ones(len(axis.weights), bool) for axis in axes]
        _grow(cells[drawn], values[drawn], axes, whole, leaves, least)
        explained[tree] = _explained(leaves, axes)
    mean: Floats = explained.mean(axis=0)
    return mean


def _explained(leaves: Sequence[_Leaf], axes: Sequence[Axis]) -> Floats:
    """Returns the parts of a tree's variance explained by its axes, [axes]."""
    value = np.array([leaf.value for leaf in leaves])
    pairs = [zip(axes, leaf.cells, strict=True) for leaf in leaves]
    parts = np.array([[axis.weights @ held for axis, held in pair] for pair in pairs])
    volume = parts.prod(axis=1)
    mean = float(volume @ value)
    total = float(volume @ (value - mean) ** 2)
    if total <= 0:
        return np.zeros(len(axes))
    explained = np.zeros(len(axes))
    for place, axis in enumerate(axes):
        held = np.array([leaf.cells[place] for leaf in leaves], float)  # [leaves, cells]
        marginal = (value * volume / parts[:, place]) @ held
        explained[place] = axis.weights @ (marginal - mean) ** 2 / total
    return explained


def _grow(
    cells: Integers,
    values: Floats,
    axes: Sequence[Axis],
    box: list[Cells],
    leaves: list[_Leaf],
    least: int,
) -> None:
    """Splits a box at the largest reduction of the squared error; leaves have a minimum size."""
    split = _best_split(cells, values, axes, box, least)
    if split is None:
        leaves.append(_Leaf(float(values.mean()), box))
        return
    place, left = split
    goes_left = left[cells[:, place]]
    for chosen, side in ((goes_left, left), (~goes_left, ~left)):
        inner = [*box]
        inner[place] = box[place] & side
        _grow(cells[chosen], values[chosen], axes, inner, leaves, least)


def _best_split(
    cells: Integers, values: Floats, axes: Sequence[Axis], box: Sequence[Cells], least: int
) -> tuple[int, Cells] | None:
    """Returns the axis and cells of the left side of the best split; None without improvement."""
    count = len(values)
    centred = values - values.mean()
    if count < 2 * least or float(centred @ centred) <= 1e-12:
        return None
    best, split = 1e-9 * float(centred @ centred), None
    for place, axis in enumerate(axes):
        many = len(axis.weights)
        held = np.bincount(cells[:, place], minlength=many)
        sums = np.bincount(cells[:, place], weights=centred, minlength=many)
        order = np.flatnonzero(held)
        if not axis.ordered:
            order = order[np.argsort(sums[order] / held[order], kind="stable")]
        left, above = held[order].cumsum()[:-1], sums[order].cumsum()[:-1]
        if not len(left):
            continue
        # The sums of both sides are opposite because the values are centred.
        gain = above**2 / left + above**2 / (count - left)
        gain[(left < least) | (count - left < least)] = -1.0
        at = int(gain.argmax())
        if gain[at] > best:
            best, split = float(gain[at]), (place, _side(axis, order, at, box[place]))
    return split


def _side(axis: Axis, order: Integers, at: int, held: Cells) -> Cells:
    """Returns the cells left of a split, [cells]; unseen cells go to the nearer or larger side."""
    side = np.zeros(len(axis.weights), bool)
    if axis.ordered:
        side[: (int(order[at]) + int(order[at + 1]) + 1) // 2] = True
        return side
    side[order[: at + 1]] = True
    if at + 1 > len(order) / 2:
        unseen = held.copy()
        unseen[order] = False
        side |= unseen
    return side


LEAST_TRIALS = 8
"""Minimum number of trials."""

_TREES = 32
_SHUFFLES = 20
_CHANCE = 95  # percentile of the shuffled shares that defines chance
_PER_NAME = 10  # trials per hyperparameter from which on shares are reliable


@dataclass(frozen=True)
class HparamImportance:
    """Importance of one hyperparameter.

    Attributes:
      name: name of the hyperparameter.
      share: share of the variance of the metric's ranks that it explains alone, from 0 to 1.
      chance: share that it would reach if the metric were shuffled; smaller shares are not
        significant.
    """

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Importance:
    """Importances of all hyperparameters.

    Attributes:
      shares: importances in descending order; empty without enough data.
      step: step at which the trials were compared.
      reliability: sentence on the reliability of the shares.
    """

    shares: tuple[HparamImportance, ...]
    step: int | None
    reliability: str


def importance_of(record: SearchRecord) -> Importance:
    """Estimates the importance of hyperparameters at the latest step that most trials reached.

    Ranks are explained instead of values: otherwise a single diverged trial would dominate.  A
    trial with a non-finite value ranks last; failed trials are excluded.
    """
    space = [axis for axis in record.space if axis.kind != "const"]
    names = {axis.name for axis in space}
    trials = [one for one in record.trials if one.state != "failed" and names <= {*one.hparams}]
    step = common_step(trials)
    trials = [one for one in trials if any(step == measured for measured, _ in one.curve)]
    if len(trials) < LEAST_TRIALS or step is None or not space:
        count = f"{counted(len(trials), 'trial')} can be compared; from {LEAST_TRIALS} on this says"
        return Importance((), step, f"{count} how much each hyperparameter matters.")
    losses = [record.loss_of(value_at(one, step)) for one in trials]
    ranks = _ranks(losses)
    if ranks.std() == 0:
        return Importance((), step, f"All trials have the same value at step {step:,}.")
    columns = [_cells([one.hparams[axis.name] for one in trials], axis) for axis in space]
    cells = np.stack([column for column, _ in columns], axis=1)
    axes = [axis for _, axis in columns]
    rng = np.random.default_rng(record.seed)
    explained = shares(cells, ranks, axes, rng, _TREES)
    by_chance = np.array(
        [shares(cells, rng.permutation(ranks), axes, rng, _TREES // 4) for _ in range(_SHUFFLES)]
    )
    chance = np.percentile(by_chance, _CHANCE, axis=0)
    made = [
        HparamImportance(axis.name, float(share), float(often))
        for axis, share, often in zip(space, explained, chance, strict=True)
    ]
    made.sort(key=lambda one: -one.share)
    return Importance(tuple(made), step, _reliability(len(trials), made, step, record.metric))


def _reliability(trials: int, made: Sequence[HparamImportance], step: int, metric: str) -> str:
    names = counted(len(made), "hyperparameter")
    above = sum(one.share > one.chance for one in made)
    base = f"{counted(trials, 'trial')} for {names}, ranked by {metric} at step {number(step)}: "
    if not above:
        return f"{base}no share is above what chance alone gives. Run more trials."
    if trials < _PER_NAME * len(made):
        return f"{base}a hint, not a measurement."
    return f"{base}a share above its mark would come by chance in one search in twenty."


def _ranks(losses: Sequence[float]) -> Floats:
    """Returns ranks from 0 to 1; equal losses share a rank."""
    ordered = sorted(losses)
    first = {loss: place for place, loss in reversed(list(enumerate(ordered)))}
    last = {loss: place for place, loss in enumerate(ordered)}
    return np.array([(first[loss] + last[loss]) / 2 for loss in losses]) / (len(losses) - 1)


def _cells(values: Sequence[AnyValue], axis: SpaceAxis) -> tuple[Integers, Axis]:
    """Divides an axis into cells, one per tried value.

    Returns:
      [trials], index of each trial's cell; and the axis.
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


def _place(value: AnyValue, axis: SpaceAxis) -> float:
    """Returns the position of a value in its range, from 0 to 1, clipped to the range."""
    assert axis.low is not None and axis.high is not None
    if isinstance(value, str | None) or axis.low == axis.high:
        return 0.5
    low, high, here = axis.low, axis.high, float(value)
    if axis.log and low > 0:
        low, high, here = math.log(low), math.log(high), math.log(max(here, axis.low))
    return min(max((here - low) / (high - low), 0.0), 1.0)
