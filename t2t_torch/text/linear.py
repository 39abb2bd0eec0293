"""Linear models of hashed n-grams, fitted to convergence without torch.

    counts = count_ngrams([ids], [codes_of_ids(encoder)], 2**20)
    model = fit(counts.take(train), labels[train], 4, buckets=2**20)
    model.probabilities(counts.take(rest))                        # [rows, 4]

Features are TF-IDF, scaled for each class by the root of the log-ratio of their frequencies in it
and outside; by the log-ratio itself in Wang and Manning 2012, "Baselines and Bigrams: Simple, Good
Sentiment and Topic Classification", ACL (NB-SVM).  The loss is the squared hinge of one class
against the others, or the squared error, with L2; the solver is Hsieh et al. 2008, "A Dual
Coordinate Descent Method for Large-scale Linear SVM", ICML, as in LIBLINEAR.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from t2t_torch.text.ngrams import Floats, Integers, TokenRows

COSTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Costs of the loss beside the L2 norm, of which one is chosen on held-out training rows."""

_SLOPES = np.geomspace(0.125, 64.0, 73)
_TOLERANCE = 0.05  # greatest violation of an optimum's condition, in margins
_EPOCHS = 60
_LEAST_ROWS = (1, 2)  # of an n-gram, of which one is chosen likewise
_LEAST_RATIO = 0.01  # of frequencies, a logarithm
_FOLDS = 4  # of which one is held out, or each in turn
_FEW = 4_000  # rows of which each is held out once
_MOST_HELD_OUT = 12_000  # rows on which the cost is chosen


@dataclass(frozen=True, eq=False)
class FittedLinear:
    """A fitted linear model.

    Attributes:
      idf: inverse document frequency of each column of n-grams, 0 if it was not seen, [buckets].
      weights: of each column, those of dense inputs last, [buckets + dense, K]; K is 1 for two
        classes.
      bias: [K].
      slope: factor that makes scores logits.
      cost: chosen cost of the loss.
      classes: number of classes; 0: K independent labels; -1: K numbers.
    """

    idf: Floats
    weights: Floats
    bias: Floats
    slope: float
    cost: float
    classes: int

    def scores(self, counts: TokenRows, dense: Floats | None = None) -> Any:
        """Returns the outputs.

        Args:
          counts: n-grams of each row.
          dense: numbers of each row, [rows, dense].

        Returns:
          [rows, K] float32: of classes and labels, positive if it is likely.
        """
        rows = with_dense(weigh(counts, self.idf), dense, len(self.idf))
        return _products(rows, self.weights) + self.bias

    def logits(self, scores: Floats) -> Any:
        """Returns the calibrated logit of each class or label, [rows, classes]."""
        scores = scores * self.slope
        return np.concatenate([-scores, scores], 1) / 2 if self.classes == 2 else scores

    def probabilities(self, counts: TokenRows, dense: Floats | None = None) -> Any:
        """Returns the probability of each class or label, [rows, classes]."""
        logits = self.logits(self.scores(counts, dense))
        if not self.classes:
            return 1.0 / (1.0 + np.exp(-logits))
        found = np.exp(logits - logits.max(1, keepdims=True))
        return found / found.sum(1, keepdims=True)


def fit(
    counts: TokenRows,
    targets: npt.NDArray[Any],
    classes: int,
    *,
    buckets: int,
    dense: Floats | None = None,
    weights: Floats | None = None,
    costs: Sequence[float] = COSTS,
    calibrates: bool = True,
    seed: int = 0,
) -> FittedLinear:
    """Fits a linear model; the same arguments give equal bits.

    Args:
      counts: n-grams of each row, from `count_ngrams`.
      targets: a class of each row, [rows], negative if unknown; 0 and 1 for each label, or
        numbers, [rows, K].
      classes: see `FittedLinear.classes`.
      buckets: columns of n-grams.
      dense: numbers of each row, [rows, dense].
      weights: of the rows in the loss, [rows].
      costs: ascending; of several, the one with the least loss on held-out rows is chosen.
      calibrates: False to leave out the slope of classes and labels, which takes held-out rows.
      seed: seed of the order of the rows.
    """
    signs = _signs(targets, classes)
    row_weights = np.ones(len(signs), np.float32) if weights is None else weights
    known = (row_weights > 0) & np.isfinite(signs).all(1)
    kept = np.flatnonzero(known)
    order = np.random.default_rng(seed).permutation(len(kept))[:_MOST_HELD_OUT]
    data = _Data(counts, signs, row_weights, dense, classes, buckets, seed)
    cost, slope, least = costs[0], 1.0, 1
    if len(costs) > 1 or (calibrates and classes >= 0):
        cost, slope, least = _validate(data, kept[order], costs)
    return replace(_Fitter(data, kept, idf_of(counts, buckets, least)).solve(cost), slope=slope)


def _signs(targets: npt.NDArray[Any], classes: int) -> Floats:
    """Returns 1 and -1 for each output of a row, or its numbers; NaN if unknown.  [rows, K]."""
    if classes < 0:
        return targets.astype(np.float32)
    if classes == 0:
        return np.where(targets > 0, 1.0, -1.0).astype(np.float32)
    names = np.arange(classes) if classes != 2 else np.ones(1)
    signs = np.where(targets[:, None] == names, 1.0, -1.0)
    return np.where(targets[:, None] < 0, np.nan, signs).astype(np.float32)


def _validate(data: _Data, rows: Integers, costs: Sequence[float]) -> tuple[float, float, int]:
    """Returns the first cost after which the loss on held-out rows rises, its best slope, and in
    how many rows an n-gram has to be: where each row has n-grams of its own, such as names, those
    of one row teach nothing.
    """
    count = min(_FOLDS, len(rows)) if len(rows) <= _FEW else 1
    held_out = split_folds(rows, _FOLDS)[:count]
    parts = [np.setdiff1d(rows, out) if len(rows) > 1 else rows for out in held_out]
    truth = data.signs[np.concatenate(held_out)]
    best, chosen, first = np.inf, (costs[0], 1.0, 1), 0
    for least in _LEAST_ROWS:
        fitters = [
            _Fitter(data, part, idf_of(data.counts.take(part), data.buckets, least))
            for part in parts
        ]
        before = np.inf
        for place, cost in enumerate(costs[first:], first):
            scores = [one.scores(out, cost) for one, out in zip(fitters, held_out, strict=True)]
            loss, slope = _best_slope(np.concatenate(scores), truth, data.classes)
            if loss >= before:
                break
            before = loss
            if loss < best:
                best, chosen, first = loss, (cost, slope, least), place
    return chosen


def split_folds(rows: Integers, folds: int) -> list[Integers]:
    """Returns the rows of each fold, which take turns."""
    return [rows[fold::folds] for fold in range(folds)]


def _best_slope(scores: Floats, signs: Floats, classes: int) -> tuple[float, float]:
    """Returns the least mean loss of scores times a slope, and the slope."""
    if classes < 0:
        return float(((scores - signs) ** 2).mean()), 1.0
    losses = []
    for slope in _SLOPES:
        if classes > 2:
            logits = scores * slope
            top = logits.max(1, keepdims=True)
            sums = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
            losses.append((sums - logits[np.arange(len(signs)), signs.argmax(1)]).mean())
        else:
            losses.append(np.logaddexp(0.0, -scores * signs * slope).mean())
    return float(np.min(losses)), float(_SLOPES[int(np.argmin(losses))])


def idf_of(counts: TokenRows, buckets: int, least: int = 1) -> Floats:
    """Returns the inverse document frequency of each column, 0 where it is in fewer rows than
    `least`.
    """
    frequency = np.bincount(counts.columns, minlength=buckets)
    found = np.log((1 + len(counts)) / (1 + frequency)) + 1
    return np.where(frequency >= least, found, 0.0).astype(np.float32)


def weigh(counts: TokenRows, idf: Floats) -> TokenRows:
    """Returns sublinear TF-IDF; the words and the characters of a row have the norm 1 each."""
    values = (1.0 + np.log(counts.values)) * idf[counts.columns]
    rows = np.repeat(np.arange(len(counts)), np.diff(counts.offsets))
    block = 2 * rows + (counts.columns < len(idf) // 4)
    norms = np.sqrt(np.bincount(block, values * values, 2 * len(counts)))
    values /= np.maximum(norms, 1e-12)[block]
    return replace(counts, values=values.astype(np.float32))


def with_dense(rows: TokenRows, dense: Floats | None, buckets: int) -> TokenRows:
    """Returns a matrix with numbers of each row as further columns."""
    if dense is None or not dense.size:
        return rows
    size = dense.shape[1]
    places = np.repeat(rows.offsets[1:], size)
    return TokenRows(
        np.insert(rows.columns, places, np.tile(np.arange(buckets, buckets + size), len(rows))),
        rows.offsets + size * np.arange(len(rows) + 1),
        np.insert(rows.values, places, dense.reshape(-1)),
    )


def _products(rows: TokenRows, table: Floats) -> Floats:
    """Returns the product of a sparse matrix and a table.  [rows, K]."""
    return np.stack(
        [values @ table[columns] for columns, values in _each(rows)] or [table[:0].sum(0)]
    )[: len(rows)]


def _each(rows: TokenRows) -> Iterator[tuple[Any, Floats]]:
    """Yields columns and values of each row."""
    for start, stop in itertools.pairwise(rows.offsets.tolist()):
        yield rows.columns[start:stop], rows.values[start:stop]


@dataclass(frozen=True, eq=False)
class _Data:
    """Training rows.

    Attributes:
      counts, dense, classes, buckets, seed: see `fit`.
      signs: 1 and -1 for each output of a row, or its numbers, [rows, K].
      weights: of the rows, [rows].
    """

    counts: TokenRows
    signs: Floats
    weights: Floats
    dense: Floats | None
    classes: int
    buckets: int
    seed: int

    def dense_of(self, rows: Integers) -> Floats | None:
        """Returns the numbers of some rows."""
        return None if self.dense is None else self.dense[rows]


class _Fitter:
    """Fits of some training rows with ascending costs.

    Args:
      data: all training rows.
      rows: those to fit.
      idf: of these rows; columns of 0 are left out.

    Attributes:
      idf: [buckets].
    """

    def __init__(self, data: _Data, rows: Integers, idf: Floats) -> None:
        self._data, self._signs, self._weights = data, data.signs[rows], data.weights[rows]
        counts, dense = data.counts.take(rows), data.dense_of(rows)
        self.idf = idf
        self._size = data.buckets + (0 if dense is None else dense.shape[1])
        # Columns that do not occur are left out.
        matrix = with_dense(weigh(counts, self.idf), dense, data.buckets)
        self._used = np.flatnonzero(np.bincount(matrix.columns, minlength=self._size))
        places = np.zeros(self._size, np.int32)
        places[self._used] = np.arange(len(self._used))
        self._matrix = replace(matrix, columns=places[matrix.columns])
        self._scale = np.ones((len(self._used), 1), np.float32)
        if data.classes >= 0:
            self._scale = _ratios(self._matrix, self._signs)
            self._scale[self._used >= data.buckets] = 1.0
        self._dual: Floats | None = None

    def solve(self, cost: float) -> FittedLinear:
        """Returns the model of a cost, with the slope 1."""
        found = descend(
            self._matrix,
            self._scale,
            self._signs,
            cost * self._weights,
            hinge=self._data.classes >= 0,
            start=self._dual,
            seed=self._data.seed,
        )
        self._dual = found.dual
        weights = np.zeros((self._size, self._signs.shape[1]), np.float32)
        weights[self._used] = found.weights
        return FittedLinear(self.idf, weights, found.bias, 1.0, cost, self._data.classes)

    def scores(self, rows: Integers, cost: float) -> Any:
        """Returns the scores of other rows."""
        return self.solve(cost).scores(self._data.counts.take(rows), self._data.dense_of(rows))


def _ratios(matrix: TokenRows, signs: Floats) -> Floats:
    """Returns the size of each column's log-ratio of frequencies in and outside of a class."""
    size = int(matrix.columns.max(initial=-1)) + 1
    every = np.bincount(matrix.columns, minlength=size) + 2.0
    lengths = np.diff(matrix.offsets)
    found = np.empty((size, signs.shape[1]), np.float32)
    for output in range(signs.shape[1]):
        inside = signs[:, output] > 0
        there = np.bincount(matrix.columns[np.repeat(inside, lengths)], minlength=size) + 1.0
        ratio = np.log(there / (inside.sum() + 2)) - np.log((every - there) / ((~inside).sum() + 2))
        found[:, output] = np.maximum(np.abs(ratio), _LEAST_RATIO)
    return found


class Solution(NamedTuple):
    """An optimum.

    Attributes:
      weights: [columns, K].
      bias: [K].
      dual: variable of each row and output, [rows, K].
    """

    weights: Floats
    bias: Floats
    dual: Floats


def descend(
    rows: TokenRows,
    scale: Floats,
    targets: Floats,
    costs: Floats,
    *,
    hinge: bool,
    start: Floats | None = None,
    tolerance: float = _TOLERANCE,
    epochs: int = _EPOCHS,
    seed: int = 0,
) -> Solution:
    """Minimizes the loss by coordinate descent in its dual, for all outputs at once.

    The objective of an output is sum w^2 / (2 scale) + b^2 / 2 + sum of cost * max(0, 1 - y f)^2,
    or of cost * (y - f)^2 / 2 without hinge, with f = x w + b.

    Args:
      rows: matrix x.
      scale: [columns, K] or [columns, 1]; a large one is regularized less.
      targets: y, [rows, K]; 1 and -1 with hinge.
      costs: of each row, [rows], above 0.
      hinge: see above.
      start: `Solution.dual` to start from.
      tolerance: greatest violation at which it ends.
      epochs: maximum number of passes over the rows.
      seed: seed of the order of the rows.
    """
    offsets = rows.offsets.tolist()
    squares = np.array([(values**2) @ scale[columns] for columns, values in _each(rows)])
    diagonal = ((0.5 if hinge else 1.0) / costs)[:, None].astype(np.float32)
    steps = (1.0 / (squares.reshape(len(rows), -1) + 1.0 + diagonal)).astype(np.float32)
    dual = np.zeros_like(targets) if start is None else start.copy()
    weights = _primal(rows, scale, dual)
    bias = dual.sum(0)
    generator = np.random.default_rng(seed)
    violations = np.zeros(len(rows), np.float32)
    every = active = np.arange(len(rows))
    for _ in range(epochs):
        for row in generator.permutation(active).tolist():
            columns = rows.columns[offsets[row] : offsets[row + 1]]
            values = rows.values[offsets[row] : offsets[row + 1]]
            own, old, target = weights[columns], dual[row], targets[row]
            residual = values @ own + bias - target + old * diagonal[row]
            new = old - residual * steps[row]
            if hinge:
                new[new * target < 0] = 0.0
            change = new - old
            violations[row] = np.abs(change / steps[row]).max()
            if violations[row] > 0:
                weights[columns] = own + values[:, None] * scale[columns] * change
                bias += change
                dual[row] = new
        # Rows at their optimum are left out until the others have converged.
        converged = violations[active].max(initial=0.0) < tolerance
        if converged and len(active) == len(every):
            break
        active = every if converged else active[violations[active] >= tolerance / 2]
    return Solution(weights, bias, dual)


def _primal(rows: TokenRows, scale: Floats, dual: Floats) -> Floats:
    """Returns the weights of dual variables, [columns, K]."""
    weights = np.zeros((len(scale), dual.shape[1]), np.float32)
    for (columns, values), own in zip(_each(rows), dual, strict=True):
        if own.any():
            weights[columns] += values[:, None] * scale[columns] * own
    return weights
