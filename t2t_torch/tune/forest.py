"""A forest of regression trees over the cells of a space, in numpy alone.

An axis is cut into cells, each with a weight: its part of the range.  A leaf of a tree holds some
cells of each axis, so what a tree says on average of one axis's cell is an exact sum over leaves:
the marginals of Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter
Importance", ICML, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Cells = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Axis:
    """One axis of the space.

    Attributes:
      weights: [cells], which sum to 1.
      ordered: whether only neighbouring cells may stay together when a leaf is split.
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
    """Returns which part of the variance over the whole space each axis explains alone.

    Args:
      cells: [trials, axes], the cell in which a trial lies.
      values: [trials], what is explained.
      axes: of the space.
      rng: chooses each tree's trials, with replacement.
      trees: how many; those that explain nothing count as zeros.

    Returns:
      [axes], the mean over the trees; their sum is at most 1, the rest belongs to combinations.
    """
    found = np.zeros((trees, len(axes)))
    least = max(2, len(values) // 24)
    for tree in range(trees):
        drawn = rng.integers(len(values), size=len(values))
        leaves: list[_Leaf] = []
        whole = [np.ones(len(axis.weights), bool) for axis in axes]
        _grow(cells[drawn], values[drawn], axes, whole, leaves, least)
        found[tree] = _explained(leaves, axes)
    mean: Floats = found.mean(axis=0)
    return mean


def _explained(leaves: Sequence[_Leaf], axes: Sequence[Axis]) -> Floats:
    """Returns the parts of a tree's variance that its axes explain, [axes]."""
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
    """Splits a box where it lowers the squared error most; a leaf has so many trials at least."""
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
    """Returns the axis and the cells of the left side; None if nothing is gained."""
    count = len(values)
    centred = values - values.mean()
    if count < 2 * least or float(centred @ centred) <= 1e-12:
        return None
    best, found = 1e-9 * float(centred @ centred), None
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
        # Both sides' sums are opposite, since the values are centred.
        gain = above**2 / left + above**2 / (count - left)
        gain[(left < least) | (count - left < least)] = -1.0
        at = int(gain.argmax())
        if gain[at] > best:
            best, found = float(gain[at]), (place, _side(axis, order, at, box[place]))
    return found


def _side(axis: Axis, order: Integers, at: int, held: Cells) -> Cells:
    """Returns the cells left of a split, [cells]: unseen ones go halfway, or to the larger side."""
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
