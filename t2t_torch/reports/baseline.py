"""Trivial baselines of a data set, which a trained model should exceed.

`t2t-datagen` computes, prints and writes them beside the data; `t2t-trainer` warns of a run that
ends below one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.atomic_files import write_text
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.features import ClassLabel, Feature, Features, Real, Tags, Text
from t2t_torch.features.feature import select_texts
from t2t_torch.files import read_json
from t2t_torch.mode import Split
from t2t_torch.problem import Problem, metric_names
from t2t_torch.reports.column_statistics import StoredColumn
from t2t_torch.text import linear, ngrams

_MOST_ROWS = 200_000  # of the training split
_MOST_FITTED_ROWS = 10_000  # of a linear model
_MOST_FITTED_IDS = 2_000_000  # and their tokens, together
_BUCKETS = 2**18  # of its n-grams
_MOST_SCORES = 200  # classes
_COST = 0.3
_LINEAR = "a linear model of n-grams"
_NOTHING = 1e-6  # gain of a metric, by rounding


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The result of a trivial method on the dev split.

    Attributes:
      target: name of the target.
      metric: name of the metric, as evaluations report it.
      value: value of the metric.
      method: the method, for example "always 'no'".
      less_is_better: True for errors and losses.
    """

    target: str
    metric: str
    value: float
    method: str
    less_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.target}: {self.metric} {self.value:.4g} by {self.method}"

    @property
    def is_perfect(self) -> bool:
        """True if no model can exceed the baseline."""
        return self.value <= 0 if self.less_is_better else self.value >= 1

    def warning(self, value: float) -> str:
        """Returns a warning if a value of the metric does not exceed the baseline, or "".

        A model that equals a perfect baseline is not warned of.
        """
        gain = self.value - value if self.less_is_better else value - self.value
        if gain > _NOTHING or (self.is_perfect and gain > -_NOTHING):
            return ""
        than = "worse than" if gain < -_NOTHING else "no better than"
        return (
            f"warning: {self.metric} of {self.target!r} is {value:.4g} on dev, {than} "
            f"{self.value:.4g} by {self.method}"
        )


def path_of(data_dir: Path, problem: Problem) -> Path:
    """Returns the file of a problem's baselines."""
    return data_dir / f"{problem.full_name}.baseline.json"


def write_baselines(problem: Problem, data_dir: Path) -> list[Baseline]:
    """Computes the baselines of a problem, writes and returns them.

    Raises:
      DataError: the data is missing or damaged.
    """
    baselines = baselines_of(problem, data_dir)
    fingerprint = Manifest.load(data_dir, problem.dataset_name).fingerprint(Split.TRAIN)
    content = {"data": fingerprint, "baselines": [dataclasses.asdict(one) for one in baselines]}
    write_text(path_of(data_dir, problem), json.dumps(content, indent=2) + "\n")
    return baselines


def read_baselines(problem: Problem, data_dir: Path) -> list[Baseline]:
    """Returns the written baselines of a problem; none if the data has changed since."""
    try:
        content = read_json(path_of(data_dir, problem))
        manifest = Manifest.load(data_dir, problem.dataset_name)
        if content["data"] != manifest.fingerprint(Split.TRAIN):
            return []
        return [Baseline(**one) for one in content["baselines"]]
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return []


def warnings_of(problem: Problem, data_dir: Path, metrics: Mapping[str, float]) -> list[str]:
    """Returns a warning for each baseline that a model does not exceed.

    Args:
      problem: the problem of the model, which may have components.
      data_dir: directory of the data, where `t2t-datagen` has written the baselines.
      metrics: metrics of the model on dev, by their full names.
    """
    found = []
    for part in problem.components:
        for one in read_baselines(part, data_dir):
            value = metrics.get(f"metrics-{part.full_name}/{one.target}/{one.metric}", math.nan)
            found.append(one.warning(value) if math.isfinite(value) else "")
    return list(filter(None, found))


def baselines_of(problem: Problem, data_dir: Path) -> list[Baseline]:
    """Returns the baselines of the targets that have one.

    Raises:
      DataError: the data is missing or damaged.
    """
    manifest = Manifest.load(data_dir, problem.dataset_name)
    if not {Split.TRAIN.value, Split.EVAL.value} <= manifest.splits.keys():
        return []
    features = problem.features(data_dir)
    splits = [
        SplitRows(Shards.open(data_dir, problem.dataset_name, split), features)
        for split in (Split.TRAIN, Split.EVAL)
    ]
    found: list[Baseline] = []
    for name, feature in features.targets.items():
        metrics = metric_names(problem, name)
        found += [one for one in _of_target(feature, name, *splits) if one.metric in metrics]
    return found


class SplitRows:
    """Stored rows of a split.

    Args:
      shards: the split.
      features: the problem's.
      numbers: of the rows; by default the first ones.

    Attributes:
      texts: names of the input texts.
    """

    def __init__(
        self, shards: Shards, features: Features, numbers: Sequence[int] | None = None
    ) -> None:
        self._shards, self._features = shards, features
        self._numbers = range(min(len(shards), _MOST_ROWS)) if numbers is None else numbers
        self.texts = list(select_texts(features.inputs))

    def __len__(self) -> int:
        return len(self._numbers)

    def column(self, name: str) -> StoredColumn:
        """Returns the column of a feature."""
        return StoredColumn(self._shards.column(self._features.columns[name]))

    def rows(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Yields the numbers of each row; integers are int64."""
        column = self.column(name)
        for number in self._numbers:
            row = column.row(number)
            yield row.astype(np.int64) if row.dtype.kind in "iu" else row

    def tokens(
        self, names: Sequence[str], most: int | None = None
    ) -> tuple[list[ngrams.TokenRows], list[ngrams.TokenRows]]:
        """Returns the ids of some texts of the first rows, and the codes of their ids."""
        inputs: Any = self._features.inputs
        parts: Any = [[*itertools.islice(self.rows(name), most)] for name in names]
        codes = [ngrams.codes_of_ids(inputs[name].encoder) for name in names]
        return [ngrams.TokenRows.of_lists(rows) for rows in parts], codes


@functools.singledispatch
def _of_target(feature: Feature, name: str, train: SplitRows, dev: SplitRows) -> list[Baseline]:
    """Returns the baselines of a target; of most kinds there is none."""
    return []


@_of_target.register
def _(feature: ClassLabel, name: str, train: SplitRows, dev: SplitRows) -> list[Baseline]:
    labels, expected = (
        np.concatenate([*split.rows(name), np.empty(0, np.int64)]) for split in (train, dev)
    )
    classes = feature.vocab_size
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    majority = float((expected == counts.argmax()).mean())
    found = [Baseline(name, "accuracy", majority, f"always {feature.labels[counts.argmax()]!r}")]
    known = np.where(labels < 0, -1, labels)
    for scores, method in _fit(train, dev, known, classes):
        best = scores.argmax(1) if classes > 2 else (scores[:, 0] > 0)
        found.append(Baseline(name, "accuracy", float((best == expected).mean()), method))
    return found


def _fit(
    train: SplitRows, dev: SplitRows, targets: npt.NDArray[Any], classes: int
) -> Iterator[tuple[npt.NDArray[np.float32], str]]:
    """Yields the scores of a linear model on dev and its name, if it reads the problem.

    Args:
      train: training split.
      dev: dev split.
      targets: of the training rows; see `text.linear.fit`.
      classes: see `text.linear.FittedLinear`.
    """
    if not 1 <= len(train.texts) <= 2 or classes > _MOST_SCORES:
        return
    rows = len(targets)
    tokens = sum(train.column(name).num_values for name in train.texts) / max(1, rows)
    most = max(1, min(rows, _MOST_FITTED_ROWS, int(_MOST_FITTED_IDS / max(1.0, tokens))))
    if not rows or (classes > 0 and targets[:most].max() < 0):
        return
    counts, agree = _ngrams(train, most)
    options: Any = {"buckets": _BUCKETS, "costs": (_COST,), "calibrates": False}
    fitted = linear.fit(counts, targets[:most], classes, dense=agree, **options)
    part = f", {most:,} rows" if most < rows else ""
    yield fitted.scores(*_ngrams(dev)), _LINEAR + part


def _ngrams(split: SplitRows, most: int | None = None) -> tuple[ngrams.TokenRows, Any]:
    """Returns the n-grams of the texts of the first rows, and how much two texts agree."""
    tokens = split.tokens(split.texts, most)
    agree = ngrams.overlaps(*tokens) if len(split.texts) > 1 else None
    return ngrams.count_ngrams(*tokens, _BUCKETS), agree


@_of_target.register
def _(feature: Tags, name: str, train: SplitRows, dev: SplitRows) -> list[Baseline]:
    words = next((text for text in train.texts if text == feature.of), None)
    size = train._features.inputs[words].vocab_size if words else 0
    counts = np.zeros((max(size, 1), feature.vocab_size), np.int64)
    for ids, tags in _by_word(train, words, name):
        np.add.at(counts, (ids, np.maximum(tags, 0)), tags >= 0)
    usual = counts.argmax(1)
    usual[counts.sum(1) == 0] = counts.sum(0).argmax()
    right = [usual[ids] == tags for ids, tags in _by_word(dev, words, name)]
    method = "each word's most frequent tag" if words else "the most frequent tag"
    return [Baseline(name, "accuracy", float(np.concatenate(right).mean()), method)]


def _by_word(
    split: SplitRows, words: str | None, tags: str
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yields the id and the tag of each word of each row; id 0 if words have several ids."""
    texts: Iterator[npt.NDArray[np.int64] | None] = (
        split.rows(words) if words else (None for _ in range(len(split)))
    )
    for ids, row in zip(texts, split.rows(tags), strict=True):
        known = ids[: len(row)] if ids is not None and len(ids) - len(row) in (0, 1) else None
        yield (np.zeros_like(row) if known is None else known), row


@_of_target.register
def _(feature: Real, name: str, train: SplitRows, dev: SplitRows) -> list[Baseline]:
    values, expected = (np.stack([*split.rows(name)]).astype(np.float64) for split in (train, dev))
    scale = np.asarray(feature.std or [1.0])
    found = []
    for scores, method in [(values.mean(0), "the mean"), *_fit(train, dev, values, -1)]:
        error = float(np.sqrt((((expected - scores) * scale) ** 2).mean()))
        found.append(Baseline(name, "rmse", error, method, less_is_better=True))
    return found


@_of_target.register
def _(feature: Text, name: str, train: SplitRows, dev: SplitRows) -> list[Baseline]:
    if len(train.texts) != 1:
        return []
    inputs: Any = train._features.inputs[train.texts[0]]
    if inputs.encoder is not feature.encoder:
        return []  # ids of other vocabularies mean other texts
    pairs = zip(dev.rows(train.texts[0]), dev.rows(name), strict=True)
    right = float(np.mean([np.array_equal(one, other) for one, other in pairs]))
    return [Baseline(name, "accuracy_per_sequence", right, "a copy of the input")]
