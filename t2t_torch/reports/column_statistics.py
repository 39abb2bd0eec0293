"""Statistics of stored features: labels, lengths, numbers, unknowns, buckets, duplicates."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.data.shards import Ragged, Shards, Values
from t2t_torch.data.shuffle import splitmix64
from t2t_torch.errors import DataError
from t2t_torch.features import NO_SPAN, UNKNOWN, Feature, Features, Span, Text, WordCharacters
from t2t_torch.features.real import num_channels, scale
from t2t_torch.text.encoder import EOS, PAD, CharacterEncoder, TextEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tags import scheme_of
from t2t_torch.text.tree import TransitionEncoder

BLOCK_VALUES = 1 << 20
"""Maximum numbers of values and of rows in a block; a larger row is a block by itself."""


class StoredColumn:
    """The rows of a feature, mapped from the shards' files.

    Args:
      pairs: values and offsets of each record batch, as `Shards.column` returns them.
    """

    def __init__(self, pairs: Sequence[tuple[Values, npt.NDArray[np.integer[Any]]]]) -> None:
        self._batches = list(pairs)
        self._ends = np.cumsum([len(offsets) - 1 for _, offsets in pairs])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def num_values(self) -> int:
        """The number of values of all rows."""
        return sum(int(offsets[-1]) - int(offsets[0]) for _, offsets in self._batches)

    def row(self, index: int, limit: int | None = None) -> Values:
        """Returns the values of a row, or the first `limit` of them."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        values, offsets = self._batches[number]
        place = index - int(self._ends[number]) + len(offsets) - 1
        start, stop = int(offsets[place]), int(offsets[place + 1])
        return values[start : stop if limit is None else min(stop, start + limit)]

    def blocks(self, size: int = BLOCK_VALUES) -> Iterator[tuple[int, Ragged]]:
        """Yields (number of the first row, rows) of consecutive blocks."""
        first = 0
        for values, offsets in self._batches:
            total, start = len(offsets) - 1, 0
            while start < total:
                low = int(offsets[start])
                stop = int(np.searchsorted(offsets, low + size, side="right")) - 1
                stop = min(max(stop, start + 1), start + size)
                places = offsets[start : stop + 1].astype(np.int64)
                yield first + start, Ragged(values[low : places[-1]], places - low)
                start = stop
            first += total


@dataclass(frozen=True)
class LabelCounts:
    """Label counts.

    Attributes:
      labels: all labels in the order of their ids.
      counts: count of each label; for soft labels, the sum of their probabilities.
      unknown: number of labels that do not occur in training.
      none: number of rows without a label, for rows with several labels.
    """

    labels: tuple[str, ...]
    counts: tuple[float, ...]
    unknown: int = 0
    none: int = 0

    @property
    def total(self) -> float:
        """The number of all labels, including unknown ones."""
        return sum(self.counts) + self.unknown

    @property
    def absent(self) -> tuple[str, ...]:
        """The labels that do not occur."""
        return tuple(x for x, count in zip(self.labels, self.counts, strict=True) if not count)

    def most_frequent(self, count: int | None = None) -> list[tuple[str, float]]:
        """Returns labels and their counts, most frequent first."""
        pairs = zip(self.labels, self.counts, strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])[:count]


def count_labels(feature: Feature, column: StoredColumn) -> LabelCounts:
    """Counts the labels of a feature in all rows."""
    labels = feature.labels
    if not feature.vocab_size:
        return _count_rows(labels, column)
    first = feature.vocab_size - len(labels)  # ids below are reserved
    counts = np.zeros(len(labels), np.int64)
    unknown = 0
    for _, rows in column.blocks():
        ids = rows.values.astype(np.int64)
        unknown += int(np.count_nonzero(ids == UNKNOWN))
        counts += id_counts(ids[ids >= first] - first, len(labels))
    return LabelCounts(labels, tuple(counts.tolist()), unknown)


def _count_rows(labels: tuple[str, ...], column: StoredColumn) -> LabelCounts:
    """Counts the labels of rows with one number per label."""
    sums = np.zeros(len(labels))
    none = 0
    for _, rows in column.blocks():
        table = rows.values.reshape(len(rows), -1)
        if table.shape[1] != len(labels):
            raise _outgrown(f"{table.shape[1]} numbers a row", f"{len(labels)} labels")
        sums += table.sum(axis=0, dtype=np.float64)
        none += int(np.count_nonzero(~table.any(axis=1)))
    whole = np.allclose(sums, np.rint(sums))
    return LabelCounts(labels, tuple((np.rint(sums) if whole else sums).tolist()), none=none)


def id_counts(ids: np.ndarray, size: int) -> np.ndarray:
    """Returns the count of each id, [size].

    Raises:
      DataError: an id is `size` or larger.
    """
    counts = np.bincount(ids, minlength=size)
    if len(counts) > size:
        raise _outgrown(f"ids up to {len(counts) - 1}", f"{size} of them")
    return counts


class TagFaults(NamedTuple):
    """Number of sentences, of those whose tags break the rules of their scheme, and an example."""

    rows: int
    broken: int
    example: str

    def __str__(self) -> str:
        return f"{self.broken:,} of {self.rows:,} training sentences ({self.example})"

    @property
    def are_usual(self) -> bool:
        """True if so many break them that the data has other rules, such as those of IOB1."""
        return self.broken > 0.05 * self.rows


def tag_faults(labels: Sequence[str], column: StoredColumn) -> TagFaults:
    """Counts the sentences of a column of tags that break the rules of the labels' scheme."""
    starts, follows, ends = map(np.array, scheme_of(labels).rules(labels))
    broken, example = 0, ""
    for _, rows in column.blocks():
        ids, there = rows.values.astype(np.int64), rows.lengths > 0
        first, last = rows.offsets[:-1][there], rows.offsets[1:][there] - 1
        good = follows[ids[:-1], ids[1:]] | (ids[:-1] < 0) | (ids[1:] < 0)
        good[last[:-1]] = True  # two sentences
        wrong = np.flatnonzero(~good)
        at_ends = [
            first[~starts[ids[first]] & (ids[first] >= 0)],
            last[~ends[ids[last]] & (ids[last] >= 0)],
        ]
        places = np.concatenate([wrong, *at_ends])
        broken += len(np.unique(np.searchsorted(rows.offsets, places, side="right")))
        if not example and len(wrong):
            example = f"{labels[ids[wrong[0] + 1]]} after {labels[ids[wrong[0]]]}"
        elif not example and len(places):
            example = f"{labels[ids[places[0]]]} as first or last"
    return TagFaults(len(column), broken, example)


def _outgrown(actual: str, expected: str) -> DataError:
    return DataError(
        f"The data has {actual}, its vocabulary or labels {expected}: the problem has changed "
        "since the data was made. Generate it again:  t2t-datagen --overwrite ..."
    )


_BINS = 60
_SKEWED = 12
"""Ratio of the longest row to the median from which lengths are plotted on a logarithmic scale."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the rows of a feature, in tokens, or in words if it has one entry per word.

    Attributes:
      total: sum of the lengths.
      mean: mean length.
      median: median length.
      p95: 95th percentile.
      shortest: minimum length.
      longest: maximum length.
      empty: number of rows that are empty or have only an end symbol.
    """

    total: int
    mean: float
    median: float
    p95: float
    shortest: int
    longest: int
    empty: int


@dataclass(frozen=True)
class Histogram:
    """Histogram of rows; bin i has `edges[i] <= x < edges[i + 1]`, the last also its upper edge.

    Attributes:
      edges: [bins + 1], ascending.
      counts: number of rows, [bins], by split.
      logarithmic: True if the bins are spaced logarithmically and are plotted with equal width.
    """

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]
    logarithmic: bool = False


@dataclass(frozen=True)
class PairHistogram:
    """Histogram of the lengths of two features.

    Attributes:
      names: names of the features, (horizontal, vertical).
      edges: edges of the bins on both axes, [bins + 1].
      counts: number of rows, [horizontal bins][vertical bins].
      beyond: number of rows with a length beyond the last edge.
      correlation: correlation of the lengths; None if one of them is constant.
      ratio: tokens of the second feature per token of the first.
    """

    names: tuple[str, str]
    edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    beyond: int
    correlation: float | None
    ratio: float


def lengths_of(lengths: npt.NDArray[Any], content_from: int) -> Lengths:
    """Returns the statistics of lengths.

    Args:
      lengths: length of each row, [rows], at least one.
      content_from: minimum length of a row that is not empty.
    """
    median, p95 = np.quantile(lengths, [0.5, 0.95], method="inverted_cdf")
    return Lengths(
        total=int(lengths.sum(dtype=np.int64)),
        mean=float(lengths.mean(dtype=np.float64)),
        median=float(median),
        p95=float(p95),
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        empty=int(np.count_nonzero(lengths < content_from)),
    )


def histogram_of(lengths: Mapping[str, npt.NDArray[Any]]) -> Histogram:
    """Returns the histogram of lengths; all splits have the same bins."""
    longest = max(int(values.max()) for values in lengths.values())
    shortest = min(int(values.min()) for values in lengths.values())
    middle = max(float(np.median(values)) for values in lengths.values())
    logarithmic = longest > _SKEWED * max(middle, 1) and shortest > 0
    if logarithmic:
        edges = np.unique(np.rint(np.geomspace(shortest, longest + 1, _BINS + 1)))
    else:
        step = max(1, -(-(longest + 1 - shortest) // _BINS))
        edges = np.arange(shortest, longest + 1 + step, step)
    return _histogram(lengths, edges, logarithmic=logarithmic)


def number_histogram(values: Mapping[str, npt.NDArray[Any]]) -> Histogram:
    """Returns the histogram of finite numbers; all splits have the same bins of equal width."""
    finite = {name: numbers[np.isfinite(numbers)] for name, numbers in values.items()}
    every = np.concatenate(list(finite.values()))
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 0.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    return _histogram(finite, edges)


def pair_histogram(
    names: tuple[str, str], first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> PairHistogram:
    """Returns the histogram of two lengths; up to 0.5 % of the rows are beyond the last edge."""
    high = int(np.quantile(np.maximum(first, second), 0.995, method="inverted_cdf")) + 1
    step = max(1, -(-high // _BINS))
    edges = np.arange(0, high + step, step)
    inside = (first < edges[-1]) & (second < edges[-1])
    counts, _, _ = np.histogram2d(first[inside], second[inside], bins=(edges, edges))
    varied = first.min() < first.max() and second.min() < second.max()
    return PairHistogram(
        names=names,
        edges=tuple(edges.tolist()),
        counts=tuple(map(tuple, counts.astype(int).tolist())),
        beyond=int(len(first) - np.count_nonzero(inside)),
        correlation=float(np.corrcoef(first, second)[0, 1]) if varied else None,
        ratio=float(second.sum(dtype=np.int64) / max(1, first.sum(dtype=np.int64))),
    )


def extremes(lengths: npt.NDArray[Any], count: int, *, longest: bool) -> Sequence[int]:
    """Returns the longest or the shortest rows; the first ones of equal length."""
    keys = -lengths.astype(np.int64) if longest else lengths
    rows: list[int] = np.argsort(keys, kind="stable")[:count].tolist()
    return rows


def _histogram(
    values: Mapping[str, npt.NDArray[Any]], edges: npt.NDArray[Any], *, logarithmic: bool = False
) -> Histogram:
    counts = {
        split: tuple(np.histogram(numbers, bins=edges)[0].tolist())
        for split, numbers in values.items()
    }
    return Histogram(tuple(edges.tolist()), counts, logarithmic)


_LARGE = 100.0  # a layer that is drawn for numbers near 1 has its first outputs as many times off
_FAR = 100.0  # standard deviations: no sample of a normal distribution reaches 10


@dataclass(frozen=True)
class Numbers:
    """Statistics of one component of a vector or one channel of pictures."""

    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True)
class Spans:
    """Statistics of spans of a text.

    Attributes:
      without: number of rows without a span.
      mean_words: mean number of words of a span.
      most_words: maximum number of words of a span.
    """

    without: int
    mean_words: float
    most_words: int


@np.errstate(invalid="ignore", over="ignore")
def numbers_of(column: StoredColumn, width: int) -> tuple[Numbers, ...]:
    """Returns the statistics of each of `width` components, or of `width` channels of pictures.

    Statistics of infinite numbers and NaN, which shards of older versions may have, are infinite or
    NaN.
    """
    sums, squares, count = np.zeros(width), np.zeros(width), 0
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    shift: np.ndarray | None = None  # the variance of large numbers would drown in rounding
    for _, rows in column.blocks():
        table = rows.values.reshape(-1, width).astype(np.float64)
        if not len(table):
            continue
        shift = table[0] if shift is None else shift
        sums += (table - shift).sum(axis=0)
        squares += np.square(table - shift).sum(axis=0)
        low, high = np.minimum(low, table.min(axis=0)), np.maximum(high, table.max(axis=0))
        count += len(table)
    if shift is None:
        return ()
    means = sums / count
    stds = np.sqrt(np.maximum(squares / count - np.square(means), 0))
    return tuple(
        Numbers(*map(float, place)) for place in zip(means + shift, stds, low, high, strict=True)
    )


def raw(feature: Feature, numbers: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    """Returns the statistics of the numbers before they were standardized."""
    means, deviations = scale(feature)
    if not means:
        return numbers
    return tuple(
        Numbers(x.mean * std + mean, x.std * std, x.low * std + mean, x.high * std + mean)
        for x, mean, std in zip(numbers, means, deviations, strict=True)
    )


@functools.singledispatch
def spans_of(feature: Feature, column: StoredColumn) -> Spans | None:
    """Returns the statistics of (first, last) pairs; None for other values."""
    return None


@spans_of.register
def _(feature: Span, column: StoredColumn) -> Spans | None:
    without = words = most = 0
    for _, rows in column.blocks():
        places = rows.values.reshape(-1, 2).astype(np.int64)
        valid = places[places[:, 0] != NO_SPAN]
        widths = valid[:, 1] - valid[:, 0] + 1
        without += len(places) - len(valid)
        words += int(widths.sum())
        most = max(most, int(widths.max(initial=0)))
    return Spans(without, words / max(1, len(column) - without), most)


def scale_warnings(features: Features, shards: Shards) -> Iterator[str]:
    """Yields a warning for each component of numbers with a scale that is hard to learn.

    Args:
      features: features of the data.
      shards: shards of the training split.
    """
    for name, feature in {**features.inputs, **features.targets}.items():
        size = num_channels(feature)
        if not size or len(feature.shape) > 2:  # the model standardizes pictures
            continue
        figures = numbers_of(StoredColumn(shards.column(features.columns[name])), size)
        for place, (stored, own) in enumerate(zip(figures, raw(feature, figures), strict=True)):
            which = f"number {place + 1} of {name!r}" if size > 1 else f"{name!r}"
            magnitude = math.hypot(stored.mean, stored.std)
            if magnitude > _LARGE or 0 < magnitude < 1 / _LARGE:
                yield (
                    f"{which} is learned as it is: mean {own.mean:.4g}, standard deviation "
                    f"{own.std:.4g}. Scale it so that both are near 1."
                )
                continue
            far = max(stored.high - stored.mean, stored.mean - stored.low)
            if stored.std and far > _FAR * stored.std:
                yield (
                    f"{which} goes from {own.low:.4g} to {own.high:.4g}: up to "
                    f"{far / stored.std:,.0f} standard deviations from its mean, {own.mean:.4g}. "
                    "Look at its largest values, or take logarithms."
                )


_LOOKED_AT = 20_000
"""Unknown places of a split that examples are taken from, the first ones."""
_EXAMPLES = 8


@dataclass(frozen=True)
class Unknowns:
    """The ids of a text of one split, and those of them that stand for what is unknown.

    Attributes:
      noun: what is counted.
      tokens: ids of the texts, padding and ends of texts not counted.
      unknown: those that stand for what has no id of its own.
      rows: rows with such an id.
      first_row: the first of them; -1 if there is none.
      most_frequent: what is unknown and how often, where that is known; of the first
        twenty thousand places.
      used: how many different ids there are.
    """

    noun: str
    tokens: int
    unknown: int
    rows: int
    first_row: int
    most_frequent: tuple[tuple[str, int], ...]
    used: int

    @property
    def share(self) -> float:
        """Fraction of unknown tokens."""
        return self.unknown / max(1, self.tokens)


def unknowns_of(
    feature: Text,
    column: StoredColumn,
    characters: tuple[WordCharacters, StoredColumn] | None = None,
) -> Unknowns:
    """Returns the statistics of unknown tokens.

    Args:
      feature: feature of the texts.
      column: ids of the texts.
      characters: characters of each word, if the data has them and a word has one id.
    """
    encoder = feature.encoder
    unknown = np.zeros(encoder.vocab_size, bool)
    unknown[list(encoder.unknown_ids)] = True
    counts = np.zeros(encoder.vocab_size, np.int64)
    rows_with, first_row, looked_at = 0, -1, 0
    seen: Counter[str] = Counter()
    for first, rows in column.blocks():
        counts += id_counts(rows.values, encoder.vocab_size)
        places = np.flatnonzero(unknown[rows.values])
        if not len(places):
            continue
        owners = np.unique(np.searchsorted(rows.offsets, places, side="right") - 1)
        rows_with += len(owners)
        first_row = first + int(owners[0]) if first_row < 0 else first_row
        places = places[: max(0, _LOOKED_AT - looked_at)]
        looked_at += len(places)
        if isinstance(encoder, SubwordEncoder):
            runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
            for run in runs if len(places) else ():
                seen.update(encoder.decode(rows.values[run]))
        elif characters is not None and len(places):
            owner = np.searchsorted(rows.offsets, places, side="right") - 1
            words = places - rows.offsets[owner]
            seen.update(_spelt(*characters, owner + first, words))
    return Unknowns(
        noun=_noun(encoder),
        tokens=int(counts.sum() - counts[PAD] - counts[EOS]),
        unknown=int(counts[unknown].sum()),
        rows=rows_with,
        first_row=first_row,
        most_frequent=tuple(seen.most_common(_EXAMPLES)),
        used=int(np.count_nonzero(counts)),
    )


def _spelt(
    feature: WordCharacters, column: StoredColumn, rows: np.ndarray, words: np.ndarray
) -> list[str]:
    """Returns the first characters of words, given by row and position."""
    width = feature.width
    return [
        feature.encoder.decode(column.row(row)[word * width : (word + 1) * width])
        for row, word in zip(rows.tolist(), words.tolist(), strict=True)
    ]


@functools.singledispatch
def _noun(encoder: TextEncoder) -> str:
    return "unknown words"


_noun.register(SubwordEncoder, lambda encoder: "byte fallback")
_noun.register(TransitionEncoder, lambda encoder: "unknown labels")
_noun.register(CharacterEncoder, lambda encoder: "unknown characters")


@dataclass(frozen=True)
class Bucket:
    """Batches of rows in a range of lengths, in tokens.

    Attributes:
      low: minimum length, in positions.
      high: maximum length; None for no maximum.
      batch_size: number of rows of a full batch.
      rows: number of rows of the batches, including shorter ones left over from the bucket below.
      batches: number of batches of an epoch.
      tokens: number of tokens of all features.
      positions: number of positions of all features, including padding.
      boundary: exclusive upper bound of the lengths; of the last bucket, of those that there are.
    """

    low: int
    high: int | None
    batch_size: int
    rows: int
    batches: int
    tokens: int
    positions: int
    boundary: int

    @property
    def padding(self) -> float:
        """The fraction of padding."""
        return 1 - self.tokens / max(1, self.positions)

    def joined(self, other: Bucket | None) -> Bucket:
        """Returns the statistics of the bucket in two parts of a data set; None is no part."""
        if other is None:
            return self
        names = ("rows", "batches", "tokens", "positions")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, boundary=max(self.boundary, other.boundary), **sums)


@dataclass(frozen=True)
class BucketTable:
    """Batches of the training split in an epoch.

    Attributes:
      hparams: hparams set and changes that determine the batches.
      buckets: buckets in ascending order, without empty ones.
      rows: number of rows of the batches.
      left_out: number of rows that are too long or too short.
      batches: number of batches.
      tokens: number of tokens of all features, without padding.
      padding: fraction of padding in all positions.
    """

    hparams: str
    buckets: tuple[Bucket, ...]
    rows: int
    left_out: int
    batches: int
    tokens: int
    padding: float


Hashes: TypeAlias = npt.NDArray[np.uint64]

_POSITION_BITS = np.uint64(32)  # a value has 32 bits at most, so (position, value) has 64


def row_hashes(column: StoredColumn) -> Hashes:
    """Returns the hash of each row, [rows].

    The hashes of all (position, value) pairs are summed.  Unlike a polynomial modulo 2**64, this
    has no systematic collisions.  The probability of a collision among ten million different rows
    is 3e-6.

    Equal rows are found by sorting the hashes.
    """
    hashes = np.empty(len(column), np.uint64)
    for first, rows in column.blocks():
        hashes[first : first + len(rows)] = _block_hashes(rows)
    return hashes


def combined(first: Hashes, second: Hashes) -> Hashes:
    """Returns hashes of pairs; (a, b) and (b, a) differ."""
    return splitmix64(splitmix64(first) + second)


def _block_hashes(rows: Ragged) -> Hashes:
    lengths = rows.lengths
    starts = rows.offsets[:-1]
    values = np.ascontiguousarray(rows.values)
    numbers = values.view(np.dtype(f"u{values.dtype.itemsize}")).astype(np.uint64)
    positions = np.arange(len(values), dtype=np.int64) - np.repeat(starts, lengths)
    numbers |= positions.astype(np.uint64) << _POSITION_BITS
    filled = lengths > 0  # reduceat gives an empty row the next one's first number
    sums = np.zeros(len(rows), np.uint64)
    if filled.any():
        sums[filled] = np.add.reduceat(splitmix64(numbers), starts[filled])
    return splitmix64(sums + lengths.astype(np.uint64))


EXAMPLES = 2
"""Number of displayed pairs of rows of each kind."""


@dataclass(frozen=True)
class Pair:
    """Two rows with a common part: row numbers from 0, the later one second."""

    first: int
    second: int


@dataclass(frozen=True)
class Repeats:
    """Duplicates in a split.

    Attributes:
      rows: number of rows equal to an earlier row in all features.
      examples: examples of such rows.
      most_times: count of the most frequent row.
      most_row: first occurrence of the most frequent row.
      inputs: number of rows with the inputs of an earlier row; None without inputs.
      input_examples: examples of such rows whose targets differ.
      contradictions: number of rows whose inputs also occur with other targets; None without
        inputs.
    """

    rows: int
    examples: tuple[Pair, ...]
    most_times: int
    most_row: int
    inputs: int | None
    input_examples: tuple[Pair, ...]
    contradictions: int | None


@dataclass(frozen=True)
class Overlap:
    """Rows of a split that also occur in another split.

    Attributes:
      split: split whose rows are counted.
      other: split in which they are searched.
      rows: number of rows equal to a row of the other split in all features.
      examples: examples, (row of the other split, row of this split).
      inputs: number of rows whose inputs occur in the other split; None without inputs.
      input_examples: examples of such rows whose targets differ.
    """

    split: str
    other: str
    rows: int
    examples: tuple[Pair, ...]
    inputs: int | None
    input_examples: tuple[Pair, ...]


@dataclass(frozen=True)
class RowKeys:
    """Hashes of the rows of a split, each [rows].

    Attributes:
      rows: hashes of all features.
      inputs: hashes of the inputs; None without inputs.
      targets: hashes of the targets.
    """

    rows: Hashes
    inputs: Hashes | None
    targets: Hashes

    @classmethod
    def of(
        cls, inputs: Mapping[str, Hashes], targets: Mapping[str, Hashes], rest: Hashes
    ) -> RowKeys:
        """Combines the hashes of features; `rest` is for features that are neither."""
        zero = np.zeros_like(rest)
        joined = functools.reduce(combined, inputs.values()) if inputs else None
        wanted = functools.reduce(combined, targets.values()) if targets else zero
        both = combined(zero if joined is None else joined, wanted)
        return cls(combined(both, rest), joined, wanted)


def distinct(hashes: Hashes) -> int:
    """Returns the number of different rows."""
    return len(np.unique(hashes))


def repeats_of(keys: RowKeys) -> Repeats:
    """Returns the duplicates in a split with at least one row."""
    first, group, sizes = _groups(keys.rows)
    repeated = np.flatnonzero(first[group] < np.arange(len(group)))
    most = int(np.argmax(sizes))
    examples = _pairs(first[group], repeated)
    whole = Repeats(len(repeated), examples, int(sizes[most]), int(first[most]), None, (), None)
    if keys.inputs is None:
        return whole
    first, group, sizes = _groups(keys.inputs)
    firsts = first[group]
    alike = np.flatnonzero(firsts < np.arange(len(group)))
    contradictory = np.unique(group[keys.targets != keys.targets[firsts]])
    # A row that repeats another one is not named again among those with the same inputs.
    return replace(
        whole,
        inputs=len(alike),
        input_examples=_pairs(firsts, np.setdiff1d(alike, repeated, assume_unique=True)),
        contradictions=int(sizes[contradictory].sum()),
    )


def overlap_of(split: str, keys: RowKeys, other: str, other_keys: RowKeys) -> Overlap:
    """Returns the rows of one split that also occur in another."""
    rows = _first_with(other_keys.rows, keys.rows)
    same = np.flatnonzero(rows >= 0)
    examples = _pairs(rows, same)
    if keys.inputs is None or other_keys.inputs is None:
        return Overlap(split, other, len(same), examples, None, ())
    inputs = _first_with(other_keys.inputs, keys.inputs)
    alike = np.flatnonzero(inputs >= 0)
    rest = np.setdiff1d(alike, same, assume_unique=True)
    return Overlap(split, other, len(same), examples, len(alike), _pairs(inputs, rest))


def _groups(hashes: Hashes) -> tuple[npt.NDArray[np.int64], ...]:
    """Returns the groups of equal rows: the first row of each, the group of each row, and sizes."""
    _, first, group, sizes = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    return first, group, sizes


def _first_with(known: Hashes, hashes: Hashes) -> npt.NDArray[np.int64]:
    """Returns the first row of `known` with each hash, -1 if there is none.  [len(hashes)]."""
    if not len(known):
        return np.full(len(hashes), -1)
    unique, first = np.unique(known, return_index=True)
    places = np.minimum(np.searchsorted(unique, hashes), len(unique) - 1)
    return np.where(unique[places] == hashes, first[places], -1)


def _pairs(firsts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> tuple[Pair, ...]:
    """Returns some of the rows, each with the first row that is equal."""
    return tuple(Pair(int(firsts[row]), int(row)) for row in rows[:EXAMPLES])
