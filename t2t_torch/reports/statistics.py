"""Dataset statistics, computed from shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from t2t_torch import reports
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError, UsageError
from t2t_torch.features import Feature, Features, Text, WordCharacters
from t2t_torch.features.feature import (
    count_positions,
    find_alignments,
    select_measured,
    select_sequences,
    select_texts,
)
from t2t_torch.features.real import num_channels, scale
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.reports import column_statistics as per_column
from t2t_torch.reports import is_listed_by_word
from t2t_torch.reports.column_statistics import Overlap, Pair, StoredColumn
from t2t_torch.text.near_duplicates import NearDuplicates

MOST_COMPARED = 200_000
"""Number of rows up to which near-duplicates are looked for."""

MAX_IDS = 48
"""Number of displayed ids of a feature."""
_MAX_WORDS = 60
_MAX_CHARACTERS = 600


@dataclass(frozen=True)
class Value:
    """Value of a feature in a row.

    Attributes:
      name: name of the feature.
      text: value as text; a long one is truncated and ends with an ellipsis.
      ids: first stored numbers; empty for pictures.
      length: number of stored numbers.
    """

    name: str
    text: str
    ids: tuple[float, ...]
    length: int

    @property
    def ids_text(self) -> str:
        """The ids in one line, with an ellipsis if there are more."""
        text = " ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in self.ids)
        return f"{text} …" if 0 < len(self.ids) < self.length else text


@dataclass(frozen=True)
class AlignedWords:
    """Words and the features aligned to them.

    Attributes:
      names: names of the features, the words first.
      words: entries of each word, one per feature.
      left_out: number of words at the end that are not displayed.
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class SampleRow:
    """A row of a split.

    Attributes:
      split: name of the split.
      row: number of the row, from 0.
      values: values of the features.
      aligned: words with their tags.
      pictures: pictures by feature, [height, width, channels].
    """

    split: str
    row: int
    values: tuple[Value, ...]
    aligned: tuple[AlignedWords, ...] = ()
    pictures: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)


def spread(rows: int, count: int) -> list[int]:
    """Returns the numbers of `count` rows spread evenly over all rows."""
    return sorted({(2 * i + 1) * rows // (2 * count) for i in range(count)} if rows else set())


def sample_row(
    split: str, row: int, features: Features, columns: Mapping[str, StoredColumn]
) -> SampleRow:
    """Reads a row."""
    stored = {name: columns[name].row(row) for name in features.all}
    pictures = {name: reports.draw(feature, stored[name]) for name, feature in features.all.items()}
    return SampleRow(
        split=split,
        row=row,
        values=tuple(
            Value(
                name,
                text_of(name, features, stored),
                () if pictures[name] is not None else tuple(stored[name][:MAX_IDS].tolist()),
                len(stored[name]),
            )
            for name, one in features.all.items()
        ),
        aligned=_aligned(features, stored),
        pictures={name: one for name, one in pictures.items() if one is not None},
    )


def text_of(
    name: str,
    features: Features,
    stored: Mapping[str, npt.NDArray[Any]],
    limit: int = _MAX_CHARACTERS,
) -> str:
    """Returns the value of a feature as text of at most about `limit` characters."""
    text = reports.describe(features.all[name], name, features, stored, limit)
    return text if len(text) <= limit else text[:limit].rstrip() + "…"


def _aligned(
    features: Features, stored: Mapping[str, npt.NDArray[Any]]
) -> tuple[AlignedWords, ...]:
    tables = []
    listed = {
        name: of
        for name, of in find_alignments(features.all).items()
        if is_listed_by_word(features.all[name])
    }
    for name, words in features.all.items():
        beside = [other for other, of in listed.items() if of == name]
        if not beside:
            continue
        entries = [words.decode(stored[name])]
        entries += [
            list(map(reports.describe_entry, features.all[x].decode(stored[x]))) for x in beside
        ]
        count = max(map(len, entries))
        padded = [column + [""] * (count - len(column)) for column in entries]
        rows = tuple(zip(*(column[:_MAX_WORDS] for column in padded), strict=True))
        tables.append(AlignedWords((name, *beside), rows, max(0, count - _MAX_WORDS)))
    return tuple(tables)


_EXTREMES = 3
_START_CHARACTERS = 90
_MAX_PLACES = 16
"""Maximum number of components of a vector with separate statistics."""


@dataclass(frozen=True)
class Extreme:
    """One of the longest or shortest rows: its number, from 0, and its length."""

    row: int
    length: int


@dataclass(frozen=True)
class SplitFeatureStats:
    """Statistics of a feature in a split; None where they do not apply.

    Attributes:
      values: number of stored values.
      lengths: lengths of sequences.
      distinct: number of different rows.
      unknowns: unknown tokens of texts.
      labels: label counts of classes and tags.
      numbers: statistics of each component of a vector or each channel of pictures.
      spans: statistics of spans.
      longest: longest rows of a text.
      shortest: shortest rows of a text.
      summary: statistics defined by the feature, by name.
    """

    values: int
    lengths: per_column.Lengths | None
    distinct: int
    unknowns: per_column.Unknowns | None
    labels: per_column.LabelCounts | None
    numbers: tuple[per_column.Numbers, ...]
    spans: per_column.Spans | None
    longest: tuple[Extreme, ...]
    shortest: tuple[Extreme, ...]
    summary: Mapping[str, float | str]


@dataclass(frozen=True)
class FeatureStats:
    """Statistics of a feature in all splits.

    Attributes:
      name: name of the feature.
      kind: name of its class.
      role: "inputs", "targets" or "notes".
      vocab_size: number of ids; 0 if its values are not ids.
      shape: shape of an example in a batch.
      splits: statistics by split.
      histogram: histogram of the lengths, unless they are those of the words it is aligned to; or
        of the numbers if each row has one.
    """

    name: str
    kind: str
    role: str
    vocab_size: int
    shape: tuple[int | None, ...]
    splits: Mapping[str, SplitFeatureStats]
    histogram: per_column.Histogram | None


@dataclass(frozen=True)
class DatasetStatistics:
    """Statistics of a data set.

    Attributes:
      problem: name of the problem.
      data_dir: folder of the data.
      rows: number of rows by split.
      features: statistics of the features.
      pairs: histograms of pairs of lengths in the first split.
      repeats: duplicates by split.
      overlaps: overlaps of each split with earlier ones.
      near: rows whose input texts are near-duplicates of earlier rows of the first split, and of
        the other splits in it; empty without texts, or for more than `MOST_COMPARED` rows.
      samples: sample rows.
      starts: beginnings of the texts of mentioned rows, by split and row.
      buckets: batches of an epoch, if requested.
      skipped: number of bad records skipped by t2t-datagen, by split.
    """

    problem: str
    data_dir: str
    rows: Mapping[str, int]
    features: tuple[FeatureStats, ...]
    pairs: tuple[per_column.PairHistogram, ...]
    repeats: Mapping[str, per_column.Repeats]
    overlaps: tuple[Overlap, ...]
    samples: tuple[SampleRow, ...]
    near: tuple[Overlap, ...] = ()
    starts: Mapping[str, Mapping[int, Mapping[str, str]]] = field(default_factory=dict)
    buckets: per_column.BucketTable | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def pairs_of_rows(self) -> Iterator[tuple[str, str, str, Pair]]:
        """All examples of rows with a common part: what it is, the splits of both, and the rows."""
        found: list[tuple[str, str, per_column.Repeats | Overlap]]
        found = [(split, split, one) for split, one in self.repeats.items()]
        found += [(one.other, one.split, one) for one in self.overlaps]
        for first, second, one in found:
            for what, pairs in (("same row", one.examples), ("same inputs", one.input_examples)):
                yield from ((what, first, second, pair) for pair in pairs)
        for near in self.near:
            yield from (("nearly the same", near.other, near.split, pair) for pair in near.examples)

    def plain(self) -> dict[str, Any]:
        """Returns the statistics as JSON values, without pictures."""
        figures: dict[str, Any] = _plain(self)
        return figures


class Reader:
    """Computes the statistics of shards, one feature of one split at a time.

    Args:
      features: features as a model sees them.
      shards: shards by split, in the order of the report.
    """

    def __init__(self, features: Features, shards: Mapping[str, Shards]) -> None:
        self.features = features
        self._sequences, self._texts = select_sequences(features.all), select_texts(features.all)
        self._shards = {split: one for split, one in shards.items() if one.num_rows}
        self._columns = {
            split: {
                name: StoredColumn(one.column(column)) for name, column in features.columns.items()
            }
            for split, one in self._shards.items()
        }
        self._lengths = {
            split: {
                name: count_positions(features.all[name], one.lengths[column])
                for name, column in features.columns.items()
            }
            for split, one in self._shards.items()
        }

    def take(self, problem: str, data_dir: str, num_samples: int) -> DatasetStatistics:
        """Computes the statistics; reads the data several times in blocks.

        Memory holds a few numbers per row.

        Args:
          problem: name of the data set, for the report.
          data_dir: folder of the data, for the report.
          num_samples: number of sample rows per split.

        Raises:
          DataError: the stored data does not fit the features.
        """
        figures: dict[str, dict[str, SplitFeatureStats]] = {name: {} for name in self.features.all}
        keys: dict[str, per_column.RowKeys] = {}
        for split in self._shards:
            hashes: dict[str, per_column.Hashes] = {}
            for name in self.features.all:
                logging.debug("Looking at %s of %s.", name, split)
                hashes[name] = per_column.row_hashes(self._columns[split][name])
                figures[name][split] = self._figures(split, name, per_column.distinct(hashes[name]))
            keys[split] = self._keys(hashes)
        statistics = DatasetStatistics(
            problem=problem,
            data_dir=data_dir,
            rows={split: one.num_rows for split, one in self._shards.items()},
            features=tuple(self._feature(name, figures[name]) for name in self.features.all),
            pairs=self._pairs(),
            repeats={split: per_column.repeats_of(one) for split, one in keys.items()},
            overlaps=tuple(
                per_column.overlap_of(split, keys[split], other, keys[other])
                for place, split in enumerate(keys)
                for other in list(keys)[:place]
            ),
            samples=tuple(
                sample_row(split, row, self.features, self._columns[split])
                for split, one in self._shards.items()
                for row in spread(one.num_rows, num_samples)
            ),
            near=self._near(),
        )
        return dataclasses.replace(statistics, starts=self._starts(statistics))

    def _near(self) -> tuple[Overlap, ...]:
        """Returns the near-duplicates of the first split, and those of the others in it."""
        texts = select_texts(self.features.inputs)
        total = sum(one.num_rows for one in self._shards.values())
        if not texts or total > MOST_COMPARED:
            return ()
        index, first, found = NearDuplicates(), next(iter(self._shards)), []
        for split, columns in self._columns.items():
            pairs = []
            for row in range(self._shards[split].num_rows):
                parts = (
                    reports.describe_value(feature, feature.decode(columns[name].row(row)))
                    for name, feature in texts.items()
                )
                text = " ".join(parts)
                if others := index.find(text):
                    pairs.append(Pair(min(others), row))
                if split == first:
                    index.add(text)
            found.append(Overlap(split, first, len(pairs), tuple(pairs[:_EXTREMES]), None, ()))
        return tuple(found)

    def _keys(self, hashes: Mapping[str, per_column.Hashes]) -> per_column.RowKeys:
        inputs = {name: hashes[name] for name in self.features.inputs}
        targets = {name: hashes[name] for name in self.features.targets}
        rest = np.zeros_like(next(iter(hashes.values())))
        for name in self.features.all:
            if name not in inputs and name not in targets:
                rest = per_column.combined(rest, hashes[name])
        return per_column.RowKeys.of(inputs, targets, rest)

    def _feature(self, name: str, splits: Mapping[str, SplitFeatureStats]) -> FeatureStats:
        feature = self.features.all[name]
        return FeatureStats(
            name=name,
            kind=type(feature).__name__,
            role=self.features.role(name),
            vocab_size=feature.vocab_size,
            shape=feature.shape,
            splits=splits,
            histogram=self._histogram(name, feature),
        )

    def _histogram(self, name: str, feature: Feature) -> per_column.Histogram | None:
        if name in select_measured(self.features.all):
            return per_column.histogram_of(
                {split: one[name] for split, one in self._lengths.items()}
            )
        if num_channels(feature) == 1 and feature.shape in ((), (1,)):
            mean, std = scale(feature)
            numbers = {
                split: np.concatenate([rows.values for _, rows in one[name].blocks()])
                for split, one in self._columns.items()
            }
            if mean:
                numbers = {split: one * std[0] + mean[0] for split, one in numbers.items()}
            return per_column.number_histogram(numbers)
        return None

    def _figures(self, split: str, name: str, different: int) -> SplitFeatureStats:
        feature, column = self.features.all[name], self._columns[split][name]
        lengths = self._lengths[split][name]
        count = min(_EXTREMES, len(column)) if name in self._texts else 0
        longest = per_column.extremes(lengths, count, longest=True) if count else ()
        shortest = per_column.extremes(lengths, count, longest=False) if count else ()
        channels = 0 if name in self._sequences else num_channels(feature)
        numbers = (
            per_column.raw(feature, per_column.numbers_of(column, channels)) if channels else ()
        )
        return SplitFeatureStats(
            values=column.num_values,
            lengths=per_column.lengths_of(lengths, 1 + reports.empty_length(feature))
            if name in self._sequences
            else None,
            distinct=different,
            unknowns=per_column.unknowns_of(feature, column, self._spelling(split, name))
            if isinstance(feature, Text)
            else None,
            labels=per_column.count_labels(feature, column) if feature.labels else None,
            numbers=numbers[:_MAX_PLACES],
            spans=per_column.spans_of(feature, column),
            longest=tuple(Extreme(row, int(lengths[row])) for row in longest),
            shortest=tuple(Extreme(row, int(lengths[row])) for row in shortest),
            summary=reports.summarize(feature, (column.row(row) for row in range(len(column)))),
        )

    def _spelling(self, split: str, name: str) -> tuple[WordCharacters, StoredColumn] | None:
        """Returns the characters of a feature's words, if each word has one id."""
        words = self.features.all[name]
        for other, feature in self.features.all.items():
            if isinstance(feature, WordCharacters) and feature.of == name:
                lengths = self._lengths[split]
                if np.array_equal(lengths[other], lengths[name] - reports.empty_length(words)):
                    return feature, self._columns[split][other]
        return None

    def _pairs(self) -> tuple[per_column.PairHistogram, ...]:
        """Returns the histograms of the first input text and each other text in the first split."""
        texts = list(select_texts(self.features.all))
        if not self._shards or len(texts) < 2 or texts[0] not in self.features.inputs:
            return ()
        lengths = next(iter(self._lengths.values()))
        return tuple(
            per_column.pair_histogram((texts[0], other), lengths[texts[0]], lengths[other])
            for other in texts[1:]
        )

    def _starts(self, statistics: DatasetStatistics) -> dict[str, dict[int, dict[str, str]]]:
        """Returns the beginnings of the texts of all rows mentioned in the statistics."""
        named: dict[str, set[int]] = {split: set() for split in statistics.rows}
        for feature in statistics.features:
            for split, figures in feature.splits.items():
                named[split] |= {one.row for one in (*figures.longest, *figures.shortest)}
                if figures.unknowns and figures.unknowns.first_row >= 0:
                    named[split].add(figures.unknowns.first_row)
        for split, repeats in statistics.repeats.items():
            named[split].add(repeats.most_row)
        for _, first, second, pair in statistics.pairs_of_rows:
            named[first].add(pair.first)
            named[second].add(pair.second)
        return {
            split: {row: self._start(split, row) for row in sorted(rows)}
            for split, rows in named.items()
        }

    def _start(self, split: str, row: int) -> dict[str, str]:
        stored = {name: column.row(row) for name, column in self._columns[split].items()}
        return {
            name: text_of(name, self.features, stored, _START_CHARACTERS)
            for name in self.features.all
            if self.features.role(name) != "notes"
        }


def statistics_of(problem: Problem, data_dir: Path, *, num_samples: int) -> DatasetStatistics:
    """Returns the statistics of a problem's data.

    Raises:
      DataError: the data is missing or has no rows.
      UsageError: the problem is a mixture.
    """
    if list(problem.components) != [problem]:
        names = ", ".join(one.full_name for one in problem.components)
        raise UsageError(
            f"{problem.full_name!r} is a mixture and has no data of its own. Look at each of the "
            f"problems that it mixes: {names}."
        )
    manifest = Manifest.load(data_dir, problem.dataset_name)
    shards = shards_of(problem, data_dir)
    if not any(shards.values()):
        raise DataError(f"The data of {problem.full_name!r} in {data_dir} has no rows.")
    reader = Reader(problem.features(data_dir), shards)
    statistics = reader.take(problem.full_name, str(data_dir), num_samples)
    skipped = {split: manifest.splits[split].skipped for split in shards}
    return dataclasses.replace(statistics, skipped=skipped)


def shards_of(problem: Problem, data_dir: Path) -> dict[str, Shards]:
    """Returns the generated splits."""
    splits = Manifest.load(data_dir, problem.dataset_name).splits
    return {
        split.value: Shards.open(data_dir, problem.dataset_name, split)
        for split in Split
        if split.value in splits
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = (one.name for one in dataclasses.fields(value))
        plain = {name: _plain(getattr(value, name)) for name in fields}
        return {name: one for name, one in plain.items() if name not in ("pictures", "boundary")}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value
