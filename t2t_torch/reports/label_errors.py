"""Labels that are probably wrong, by confident learning with a linear model.

Each row is predicted by a model that was fitted to the other folds; the rows whose own label is
least probable come first.  Northcutt, Jiang and Chuang 2021, "Confident Learning: Estimating
Uncertainty in Dataset Labels", JAIR.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from t2t_torch.data.shards import Shards
from t2t_torch.features import ClassLabel, Feature, MultiLabel
from t2t_torch.features.feature import select_texts
from t2t_torch.files import open_target
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.reporter import phase
from t2t_torch.reports import describe_value
from t2t_torch.reports.baseline import SplitRows
from t2t_torch.reports.section import Note, Section, Table, number, percent
from t2t_torch.text.linear import fit, split_folds
from t2t_torch.text.ngrams import TokenRows, count_ngrams

MOST_ROWS = 30_000
"""Default number of training rows that are examined."""

_FOLDS = 3
_COST = 0.1
_BUCKETS = 2**18
_SHOWN = 20  # of a report
_CHARACTERS = 200  # of a text in a report


class LabelError(NamedTuple):
    """A label that is probably wrong.

    Attributes:
      row: number of the training row, from 0, in the order of the shards.
      given: its label, or one of its labels, or of several the missing one.
      suggested: a more probable label; of several labels "+" or "-" and the label to add or remove.
      score: probability that the given label is wrong.
      text: the inputs.
    """

    row: int
    given: str
    suggested: str
    score: float
    text: str


class LabelErrors(NamedTuple):
    """The suspicious labels of a target.

    Attributes:
      target: name of the target.
      errors: the suspicious rows, the most suspicious first.
      estimate: estimated number of wrong labels among the examined rows.
      rows: number of examined rows.
      accuracy: accuracy of the linear model on rows that it was not fitted to.
    """

    target: str
    errors: Sequence[LabelError]
    estimate: int
    rows: int
    accuracy: float


def label_errors_of(
    problem: Problem, data_dir: Path, most_rows: int = MOST_ROWS
) -> Iterator[LabelErrors]:
    """Yields the suspicious labels of each target of classes, of problems with input texts.

    Args:
      problem: the problem.
      data_dir: directory of the generated data.
      most_rows: number of training rows to examine; of more, those at equal distances.

    Raises:
      DataError: the data is missing or damaged.
    """
    features = problem.features(data_dir)
    shards = Shards.open(data_dir, problem.dataset_name, Split.TRAIN)
    inputs = [*select_texts(features.inputs)][:2]
    targets = {name: f for name, f in features.targets.items() if len(_labels_of(f)) > 1}
    if not inputs or not targets:
        return
    every = max(1, -(-len(shards) // most_rows))
    rows = range(0, len(shards), every)
    split = SplitRows(shards, features, rows)
    counts = count_ngrams(*split.tokens(inputs), _BUCKETS)
    columns = {name: split.column(name) for name in inputs}
    for name, feature in targets.items():
        stored = np.stack([*split.rows(name)]).astype(np.int64)
        own, other, suspected, right = _examined(feature, stored, counts)
        found = [
            LabelError(
                rows[place],
                *_names(feature, stored[place], int(other[place])),
                round(1.0 - float(own[place]), 4),
                " | ".join(
                    describe_value(f := features.all[n], f.decode(column.row(rows[place])))
                    for n, column in columns.items()
                ),
            )
            for place in np.argsort(own, kind="stable").tolist()
            if own[place] < 0.5 and not right[place]
        ]
        yield LabelErrors(name, found, int(suspected.sum()), len(rows), float(right.mean()))


@functools.singledispatch
def _labels_of(feature: Feature) -> Sequence[str]:
    """Returns the labels that are examined; of most kinds there are none."""
    return ()


_labels_of.register(ClassLabel | MultiLabel, lambda feature: feature.labels)


def _examined(
    feature: Feature, stored: npt.NDArray[np.int64], counts: TokenRows
) -> tuple[Any, Any, Any, Any]:
    """Returns for each row: the probability of its label, the label to suggest, whether its label
    is an error by the thresholds of confident learning, and whether the model predicts it.
    """
    size, classes = len(feature.labels), feature.vocab_size
    labels = stored[:, 0] if classes else stored
    found = np.zeros((len(stored), size), np.float32)
    every = np.argsort(np.random.default_rng(0).permutation(len(stored)))
    for rest in map(np.sort, split_folds(every, _FOLDS)):
        train = np.setdiff1d(every, rest)
        model = fit(counts.take(train), labels[train], classes, buckets=_BUCKETS, costs=(_COST,))
        found[rest] = model.probabilities(counts.take(rest))
    rows = np.arange(len(stored))
    if not classes:
        of_given = np.where(stored > 0, found, 1 - found)
        other = of_given.argmin(1)
        own = of_given[rows, other]
        return own, other, own < 0.5, own >= 0.5
    given = stored == np.arange(size)
    own, other = found[given], np.where(given, -1.0, found).argmax(1)
    usual = np.where(given, found, 0).sum(0) / np.maximum(given.sum(0), 1)
    confident = np.where((found >= usual) & (usual > 0), found, -1.0)
    suspected = (confident.max(1) >= 0) & ~given[rows, confident.argmax(1)]
    return own, other, suspected, own >= found[rows, other]


def _names(feature: Feature, stored: npt.NDArray[np.int64], other: int) -> tuple[str, str]:
    """Returns the given and the suggested label of a row."""
    given = describe_value(feature, feature.decode(stored.tolist()))
    if not feature.vocab_size:
        return given, f"{'-' if stored[other] else '+'}{feature.labels[other]}"
    return given, feature.labels[other]


def write_label_errors(
    problem: Problem, data_dir: Path, file: Path, most_rows: int = MOST_ROWS
) -> list[Section]:
    """Writes the labels that are probably wrong, as tab-separated columns, the first the worst.

    Returns:
      The section of a report; none, and no file, of problems without texts and classes.
    """
    with phase("looking for wrong labels"):
        found = list(label_errors_of(problem, data_dir, most_rows))
    if not found:
        return []
    with open_target(file) as stream:
        stream.write("target\trow\tgiven\tsuggested\tscore\ttext\n")
        for one in found:
            for error in one.errors:
                cells = (" ".join(str(cell).split()) for cell in (one.target, *error))
                stream.write("\t".join(cells) + "\n")
    blocks: list[Any] = []
    for one in found:
        rows = [
            [number(e.row), e.given, e.suggested, f"{e.score:.3f}", e.text[:_CHARACTERS]]
            for e in one.errors[:_SHOWN]
        ]
        head = ("row", "given", "suggested", "score", "text")
        blocks.append(Table(head, rows, frozenset({1, 2, 4}), one.target))
        share = percent(one.estimate / max(1, one.rows))
        blocks.append(
            Note(
                f"About {one.estimate:,} of {one.rows:,} labels ({share}) are probably wrong; the "
                f"linear model is right on {percent(one.accuracy)} of the rows. All "
                f"{len(one.errors):,} are in {file.name}."
            )
        )
    meaning = (
        "Training rows whose label a linear model finds least probable; it was fitted to the other "
        "rows.  Score: the probability that the label is wrong.  The list is as good as the model."
    )
    return [Section("label_errors", "Labels that are probably wrong", meaning, blocks)]
