"""All figures of a data set, taken from its shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from t2t_torch.data.shards import Shards
from t2t_torch.features import (
    Feature,
    Features,
    Text,
    WordCharacters,
)
from t2t_torch.features.feature import describe_entry
from t2t_torch.reports.column_statistics import (
    BucketTable,
    Column,
    Hashes,
    Histogram,
    LabelCounts,
    Lengths,
    Numbers,
    Overlap,
    PairHistogram,
    Repeats,
    RowKeys,
    Spans,
    Unknowns,
    combined,
    count_labels,
    distinct,
    extremes,
    histogram_of,
    lengths_of,
    number_histogram,
    numbers_of,
    overlap_of,
    pair_histogram,
    raw,
    repeats_of,
    row_hashes,
    spans_of,
    unknowns_of,
)

# Single rows, as text and as ids.


MAX_IDS = 48
"""Ids that are shown of a feature."""
_MAX_WORDS = 60
_MAX_CHARACTERS = 600


@dataclass(frozen=True)
class Value:
    """A feature of a row.

    Attributes:
      name: the feature's.
      text: what it says; a long one is cut, which an ellipsis shows.
      ids: the first of its numbers; none of a picture's.
      length: how many numbers it has.
    """

    name: str
    text: str
    ids: tuple[float, ...]
    length: int

    @property
    def ids_text(self) -> str:
        """The ids in a line; an ellipsis shows that there are more."""
        text = " ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in self.ids)
        return f"{text} …" if 0 < len(self.ids) < self.length else text


@dataclass(frozen=True)
class AlignedWords:
    """Words, and what each of them is given.

    Attributes:
      names: of the features: the words', then the others'.
      words: for each word its entry of each feature.
      left_out: words at the end that are not shown.
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class SampleRow:
    """A row of a split.

    Attributes:
      split: which.
      row: its number, from 0.
      values: its features.
      aligned: its words with their tags.
      pictures: by feature, [height, width, channels].
    """

    split: str
    row: int
    values: tuple[Value, ...]
    aligned: tuple[AlignedWords, ...] = ()
    pictures: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)


def spread(rows: int, count: int) -> list[int]:
    """Returns the numbers of `count` rows, each from the middle of an equal part of all."""
    return sorted({(2 * i + 1) * rows // (2 * count) for i in range(count)} if rows else set())


def sample_row(
    split: str, row: int, features: Features, columns: Mapping[str, Column]
) -> SampleRow:
    """Reads a row."""
    stored = {name: columns[name].row(row) for name in features.all}
    return SampleRow(
        split=split,
        row=row,
        values=tuple(
            Value(
                name,
                text_of(name, features, stored),
                () if one.is_image else tuple(stored[name][:MAX_IDS].tolist()),
                len(stored[name]),
            )
            for name, one in features.all.items()
        ),
        aligned=_aligned(features, stored),
        pictures={
            name: feature.decode(stored[name])
            for name, feature in features.all.items()
            if feature.is_image
        },
    )


def text_of(
    name: str,
    features: Features,
    stored: Mapping[str, npt.NDArray[Any]],
    limit: int = _MAX_CHARACTERS,
) -> str:
    """Returns what a feature of a row says, in at most about `limit` characters."""
    text = features.all[name].describe(name, features, stored, limit)
    return text if len(text) <= limit else text[:limit].rstrip() + "…"


def _aligned(
    features: Features, stored: Mapping[str, npt.NDArray[Any]]
) -> tuple[AlignedWords, ...]:
    tables = []
    for name, words in features.all.items():
        beside = [
            other
            for other, feature in features.all.items()
            if feature.aligned_to == name and feature.is_listed_by_word
        ]
        if not beside:
            continue
        entries = [words.decode(stored[name])]
        entries += [list(map(describe_entry, features.all[x].decode(stored[x]))) for x in beside]
        count = max(map(len, entries))
        padded = [column + [""] * (count - len(column)) for column in entries]
        rows = tuple(zip(*(column[:_MAX_WORDS] for column in padded), strict=True))
        tables.append(AlignedWords((name, *beside), rows, max(0, count - _MAX_WORDS)))
    return tuple(tables)


_EXTREMES = 3
_START_CHARACTERS = 90
_MAX_PLACES = 16
"""A vector's numbers are told one by one up to so many places, then as one."""


@dataclass(frozen=True)
class Extreme:
    """One of the longest or shortest rows: its number from 0, and its length."""

    row: int
    length: int


@dataclass(frozen=True)
class SplitFeatureStats:
    """What is known of a feature in a split; None where it does not apply.

    Attributes:
      values: numbers stored.
      lengths: of a sequence's rows.
      distinct: different rows.
      unknowns: of a text's ids.
      labels: of classes and tags.
      numbers: of each place of a vector, or each channel of pictures.
      spans: of parts of a text.
      longest: rows of a text.
      shortest: the same.
      summary: statistics of the feature's own, by name.
    """

    values: int
    lengths: Lengths | None
    distinct: int
    unknowns: Unknowns | None
    labels: LabelCounts | None
    numbers: tuple[Numbers, ...]
    spans: Spans | None
    longest: tuple[Extreme, ...]
    shortest: tuple[Extreme, ...]
    summary: Mapping[str, float | str]


@dataclass(frozen=True)
class FeatureStats:
    """A feature in all splits.

    Attributes:
      name: its name.
      kind: its class.
      role: "inputs", "targets" or "notes".
      vocab_size: ids it may have; 0 where its numbers are none.
      shape: of an example in a batch.
      splits: its figures, by split.
      histogram: of its lengths, unless they are those of the words that it belongs to, or of its
        numbers if each row has one.
    """

    name: str
    kind: str
    role: str
    vocab_size: int
    shape: tuple[int | None, ...]
    splits: Mapping[str, SplitFeatureStats]
    histogram: Histogram | None


@dataclass(frozen=True)
class DatasetStatistics:
    """A data set in figures.

    Attributes:
      problem: its name.
      data_dir: the folder it is in.
      rows: by split.
      features: of an example.
      pairs: the lengths of texts beside each other, in the first split.
      repeats: by split.
      overlaps: of a split with those before it.
      samples: single rows.
      starts: how the texts of the rows that are named begin, by split and row.
      buckets: an epoch's batches, if they were asked for.
      skipped: by split, records that t2t-datagen left out since they were bad.
    """

    problem: str
    data_dir: str
    rows: Mapping[str, int]
    features: tuple[FeatureStats, ...]
    pairs: tuple[PairHistogram, ...]
    repeats: Mapping[str, Repeats]
    overlaps: tuple[Overlap, ...]
    samples: tuple[SampleRow, ...]
    starts: Mapping[str, Mapping[int, Mapping[str, str]]] = field(default_factory=dict)
    buckets: BucketTable | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Returns the figures as what JSON knows, without the pictures."""
        figures: dict[str, Any] = _plain(self)
        return figures


class Reader:
    """Takes the census of shards, a feature of a split at a time.

    Args:
      features: as a model sees them.
      shards: by split, in the order in which they are told.
    """

    def __init__(self, features: Features, shards: Mapping[str, Shards]) -> None:
        self.features = features
        self._shards = {split: one for split, one in shards.items() if one.num_rows}
        self._columns = {
            split: {name: Column(one.column(column)) for name, column in features.columns.items()}
            for split, one in self._shards.items()
        }
        self._lengths = {
            split: {
                name: features.all[name].lengths(one.lengths[column])
                for name, column in features.columns.items()
            }
            for split, one in self._shards.items()
        }

    def take(self, problem: str, data_dir: str, num_samples: int) -> DatasetStatistics:
        """Reads everything, more than once, in blocks; keeps a few numbers for each row.

        Args:
          problem: the data set's name, to be told.
          data_dir: its folder, to be told.
          num_samples: rows of each split that are shown.

        Raises:
          DataError: what is stored does not fit the features.
        """
        figures: dict[str, dict[str, SplitFeatureStats]] = {name: {} for name in self.features.all}
        keys: dict[str, RowKeys] = {}
        for split in self._shards:
            hashes: dict[str, Hashes] = {}
            for name in self.features.all:
                logging.debug("Looking at %s of %s.", name, split)
                hashes[name] = row_hashes(self._columns[split][name])
                figures[name][split] = self._figures(split, name, distinct(hashes[name]))
            keys[split] = self._keys(hashes)
        statistics = DatasetStatistics(
            problem=problem,
            data_dir=data_dir,
            rows={split: one.num_rows for split, one in self._shards.items()},
            features=tuple(self._feature(name, figures[name]) for name in self.features.all),
            pairs=self._pairs(),
            repeats={split: repeats_of(one) for split, one in keys.items()},
            overlaps=tuple(
                overlap_of(split, keys[split], other, keys[other])
                for place, split in enumerate(keys)
                for other in list(keys)[:place]
            ),
            samples=tuple(
                sample_row(split, row, self.features, self._columns[split])
                for split, one in self._shards.items()
                for row in spread(one.num_rows, num_samples)
            ),
        )
        return dataclasses.replace(statistics, starts=self._starts(statistics))

    def _keys(self, hashes: Mapping[str, Hashes]) -> RowKeys:
        inputs = {name: hashes[name] for name in self.features.inputs}
        targets = {name: hashes[name] for name in self.features.targets}
        rest = np.zeros_like(next(iter(hashes.values())))
        for name in self.features.all:
            if name not in inputs and name not in targets:
                rest = combined(rest, hashes[name])
        return RowKeys.of(inputs, targets, rest)

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

    def _histogram(self, name: str, feature: Feature) -> Histogram | None:
        if not self._shards:
            return None
        if feature.is_sequence and feature.aligned_to not in self.features.all:
            return histogram_of({split: one[name] for split, one in self._lengths.items()})
        if feature.num_channels == 1 and feature.shape in ((), (1,)):
            return number_histogram(
                {split: self._numbers(feature, one[name]) for split, one in self._columns.items()}
            )
        return None

    @staticmethod
    def _numbers(feature: Feature, column: Column) -> npt.NDArray[Any]:
        values = np.concatenate([rows.values for _, rows in column.blocks()])
        mean, std = feature.scale
        return values * std[0] + mean[0] if mean else values

    def _figures(self, split: str, name: str, different: int) -> SplitFeatureStats:
        feature, column = self.features.all[name], self._columns[split][name]
        lengths = self._lengths[split][name]
        count = min(_EXTREMES, len(column)) if feature.is_text else 0
        longest = extremes(lengths, count, longest=True) if count else ()
        shortest = extremes(lengths, count, longest=False) if count else ()
        return SplitFeatureStats(
            values=column.num_values,
            lengths=lengths_of(lengths, 1 + feature.empty_length) if feature.is_sequence else None,
            distinct=different,
            unknowns=unknowns_of(feature, column, self._spelling(split, name))
            if isinstance(feature, Text)
            else None,
            labels=count_labels(feature, column) if feature.labels else None,
            numbers=self._moments(feature, column),
            spans=spans_of(column) if feature.selects_words else None,
            longest=tuple(Extreme(row, int(lengths[row])) for row in longest),
            shortest=tuple(Extreme(row, int(lengths[row])) for row in shortest),
            summary=feature.summary(column.row(row) for row in range(len(column))),
        )

    @staticmethod
    def _moments(feature: Feature, column: Column) -> tuple[Numbers, ...]:
        if not feature.num_channels or feature.is_sequence:
            return ()
        return raw(feature, numbers_of(column, feature.num_channels))[:_MAX_PLACES]

    def _spelling(self, split: str, name: str) -> tuple[WordCharacters, Column] | None:
        """The characters of a feature's words, if each word has one id."""
        words = self.features.all[name]
        for other, feature in self.features.all.items():
            if isinstance(feature, WordCharacters) and feature.of == name:
                same = np.array_equal(
                    self._lengths[split][other],
                    self._lengths[split][name] - words.empty_length,
                )
                if same:
                    return feature, self._columns[split][other]
        return None

    def _pairs(self) -> tuple[PairHistogram, ...]:
        """The first text among the inputs beside other texts: in the first split."""
        texts = [name for name, one in self.features.all.items() if one.is_text]
        if not self._shards or len(texts) < 2 or texts[0] not in self.features.inputs:
            return ()
        lengths = next(iter(self._lengths.values()))
        return tuple(
            pair_histogram((texts[0], other), lengths[texts[0]], lengths[other])
            for other in texts[1:]
        )

    def _starts(self, statistics: DatasetStatistics) -> dict[str, dict[int, dict[str, str]]]:
        """How the texts begin of all rows that the census names."""
        named: dict[str, set[int]] = {split: set() for split in statistics.rows}
        for feature in statistics.features:
            for split, figures in feature.splits.items():
                named[split] |= {one.row for one in (*figures.longest, *figures.shortest)}
                if figures.unknowns and figures.unknowns.first_row >= 0:
                    named[split].add(figures.unknowns.first_row)
        for split, repeats in statistics.repeats.items():
            pairs = (*repeats.examples, *repeats.input_examples)
            named[split] |= {repeats.most_row, *(row for p in pairs for row in (p.first, p.second))}
        for overlap in statistics.overlaps:
            for pair in (*overlap.examples, *overlap.input_examples):
                named[overlap.other].add(pair.first)
                named[overlap.split].add(pair.second)
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


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = (one.name for one in dataclasses.fields(value))
        plain = {name: _plain(getattr(value, name)) for name in fields}
        return {name: one for name, one in plain.items() if name != "pictures"}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value
