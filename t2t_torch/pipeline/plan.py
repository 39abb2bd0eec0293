"""The order of training, as a pure function of lengths, scheme, seed and epoch.

Nothing is drawn from a stream that would have to be stored: `EpochPlan.batch(k)` gives the rows of
global batch k whatever came before, so a run resumes at any step by its number alone, on any number
of processes and loader workers.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.problem import Problem

if TYPE_CHECKING:
    from t2t_torch.hparam import DataHParams


# Rows of the same lengths.


_LARGEST_TABLE = 1 << 25  # keys below it are numbered by a table, without sorting


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Rows that agree in every length, grouped.

    Groups are numbered by the longest of their lengths, then by each length in the features' order.

    Attributes:
      of_row: the group of each row, [N] int32.
      counts: rows in each group, [G].
      longest: of each group, [G].
      lengths: for each feature the length of each group, [G].
    """

    of_row: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    longest: npt.NDArray[np.int64]
    lengths: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, lengths: Mapping[str, npt.NDArray[Any]]) -> Groups:
        """Groups rows.

        Args:
          lengths: for each feature the length of each row, [N] from 0 on; N is at least 1.
        """
        keys = _Keys()
        for length in lengths.values():
            keys.append(length)
        columns = keys.columns()
        longest = np.maximum.reduce(columns)
        order = np.lexsort((*reversed(columns), longest))
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order))
        of_row = keys.look_up(numbers)
        sorted_columns = [column[order] for column in columns]
        found = dict(zip(lengths, sorted_columns, strict=True))
        return cls(of_row, np.bincount(of_row), longest[order], found)


class _Keys:
    """The lengths of each row as one number, the first length having most weight."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[Any] | None = None
        self._size = 1  # keys are below it
        self._spans: list[int] = []  # of the lengths that are in the keys as they are
        self._dense: list[npt.NDArray[Any]] = []  # the others, by what is in the keys for them

    def append(self, length: npt.NDArray[Any]) -> None:
        """Takes one more length of every row into the keys."""
        span = int(length.max()) + 1
        if self._keys is not None and self._size * span > _LARGEST_TABLE:
            self._dense, values = self.columns(), self._values
            self._keys = self.look_up(np.arange(len(values), dtype=np.int32))
            self._size, self._spans = len(values), []
        dtype = np.int32 if self._size * span < 2**31 else np.int64
        if self._keys is None:
            self._keys = length.astype(dtype)
        else:
            self._keys = self._keys.astype(dtype, copy=False) * dtype(span)
            self._keys += length
        self._size *= span
        self._spans.append(span)

    def columns(self) -> list[npt.NDArray[Any]]:
        """Returns each length of the different keys, those in rising order."""
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            self._values = np.unique(self._keys)
        else:
            there = np.zeros(self._size, np.bool_)
            there[self._keys] = True
            self._values = np.flatnonzero(there)
        left = self._values
        own: list[npt.NDArray[Any]] = []
        for span in reversed(self._spans):
            own.insert(0, left % span)
            left = left // span
        return [*(column[left] for column in self._dense), *own]

    def look_up(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns for every row the number that is given for its key; after `columns`.

        Args:
          numbers: of the different keys, those in rising order.
        """
        assert self._keys is not None
        if self._size > _LARGEST_TABLE:
            return numbers[np.searchsorted(self._values, self._keys)]
        table = np.zeros(self._size, np.int32)
        table[self._values] = numbers
        found: npt.NDArray[np.int32] = table[self._keys]
        return found


# Which lengths share a batch, and how many examples of a length fit in one.
#
# tensor2tensor's formulas (`utils/data_reader.py`), held to its own numbers by golden vectors.  One
# step is left out on purpose: tensor2tensor rounds each batch size down to a divisor of a common
# window, which its `tf.data` operator needed and which leaves up to a quarter of the token budget
# unused.


NO_LIMIT = 10**9  # tensor2tensor's "any length"


@dataclasses.dataclass(frozen=True)
class BatchingScheme:
    """Buckets by length, and the size of a batch in each.

    Attributes:
      boundaries: ascending lengths in tokens; bucket i holds `boundaries[i-1] <= length <
        boundaries[i]`, the last bucket everything from the last boundary on.
      batch_sizes: examples in a batch, one per bucket: `len(boundaries) + 1` of them.
      min_length: shorter examples are dropped; tokens.
      max_length: longer examples are dropped; tokens.
    """

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    min_length: int
    max_length: int

    def buckets(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the bucket of each length.  [N] integers -> [N] integers."""
        return np.searchsorted(np.asarray(self.boundaries), lengths, side="right")


def bucket_boundaries(
    max_length: int, min_length: int = 8, length_bucket_step: float = 1.1
) -> list[int]:
    """Returns ascending boundaries below `max_length`, each about `length_bucket_step` times the
    last.

    Args:
      max_length: no boundary reaches it; tokens.
      min_length: the first boundary; tokens.
      length_bucket_step: growth from one boundary to the next; more than 1.
    """
    if length_bucket_step <= 1.0:
        raise HParamsError(f"length_bucket_step={length_bucket_step}: expected more than 1.0.")
    if min_length < 1:
        raise HParamsError(f"min_length_bucket={min_length}: expected at least 1.")
    boundaries = []
    boundary = min_length
    while boundary < max_length:
        boundaries.append(boundary)
        boundary = max(boundary + 1, int(boundary * length_bucket_step))
    return boundaries


def batching_scheme(
    batch_size: int,
    max_length: int,
    min_length_bucket: int,
    length_bucket_step: float,
    *,
    drop_long_sequences: bool = False,
    shard_multiplier: int = 1,
    length_multiplier: int = 1,
    min_length: int = 0,
) -> BatchingScheme:
    """Returns the scheme of a token budget.

    Args:
      batch_size: tokens in a batch, padding counted.
      max_length: tokens in the longest example; 0 means `batch_size`.
      min_length_bucket: the first boundary; tokens.
      length_bucket_step: growth from one boundary to the next.
      drop_long_sequences: whether examples longer than `max_length` are dropped.
      shard_multiplier: multiplies every batch size.
      length_multiplier: multiplies boundaries and `max_length`, for data whose length is a
        multiple.
      min_length: shorter examples are dropped; tokens.

    Raises:
      HParamsError: `max_length` is less than `min_length`.
    """
    max_length = max_length or batch_size
    if max_length < min_length:
        raise HParamsError(
            f"max_length={max_length} is less than min_length={min_length}: no example fits."
        )
    boundaries = [
        boundary * length_multiplier
        for boundary in bucket_boundaries(max_length, min_length_bucket, length_bucket_step)
    ]
    max_length *= length_multiplier
    sizes = [
        max(1, batch_size // length) * shard_multiplier for length in [*boundaries, max_length]
    ]
    return BatchingScheme(
        boundaries=tuple(boundaries),
        batch_sizes=tuple(sizes),
        min_length=min_length,
        max_length=max_length if drop_long_sequences else NO_LIMIT,
    )


# The few shapes that batches have when each is filled up to its bucket.


@dataclasses.dataclass(frozen=True)
class FixedShapes:
    """The shapes of batches that are filled up to the boundary of a bucket, and to its rows.

    Attributes:
      scheme: the buckets.
      fills_rows: whether rows of padding fill up a short batch; they have no weight in a loss over
        sequences, but would in one over rows.
    """

    scheme: BatchingScheme
    fills_rows: bool

    def of(self, rows: int, longest: int) -> tuple[int, int]:
        """Returns the rows and positions of a batch.

        Args:
          rows: that it has.
          longest: positions of the longest of them.
        """
        filled, widths = self.of_batches(np.asarray([rows]), np.asarray([longest]))
        return int(filled[0]), int(widths[0])

    def of_batches(self, rows: np.ndarray, longest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns `of` many batches.  Two of [batches] integers -> two of [batches] integers.

        A batch has its bucket's shape.  The bucket is that of its longest row, or one further up:
        what a bucket has left over is in a batch of a later one, which has as many rows as that.
        """
        scheme = self.scheme
        limit = scheme.max_length if scheme.max_length < NO_LIMIT else 0
        bounds = np.asarray([*scheme.boundaries, limit])
        sizes = np.asarray(scheme.batch_sizes)  # descending
        own = scheme.buckets(longest)
        as_many = np.searchsorted(-sizes, -rows, side="left").clip(max=len(sizes) - 1)
        later = np.maximum(own, as_many)
        bucket = np.where(sizes[later] == rows, later, own)
        filled = np.maximum(rows, sizes[bucket]) if self.fills_rows else rows
        return filled, np.maximum(longest, bounds[bucket])


ORDER_VERSION = 2
"""Stands in the fingerprint.  2: large data sets are ordered by fewer random bits; windows."""

_ROWS, _BATCHES, _FILLING, _WINDOWS = range(4)  # streams of noise
_NOISE_BITS = 32  # that order rows of the same lengths, where there is room for so many
_Numbers = npt.NDArray[Any]


def noise(count: int, seed: int, block: int, stream: int) -> npt.NDArray[np.uint64]:
    """Returns `count` random numbers of 64 bits.

    The raw output of Philox is fixed for all NumPy versions, unlike `Generator.permutation`, whose
    stream NumPy may change: an order must not move under a run that is resumed after an upgrade.

    Args:
      count: how many.
      seed: of the run.
      block: an epoch, or another part of what is random.
      stream: what they are for.
    """
    bits = np.random.Philox(key=seed % 2**64, counter=[0, 0, stream, block])
    return bits.random_raw(count)


def uniform(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Returns numbers from 0 on below 1, of random numbers of 64 bits."""
    high = (raw >> np.uint64(11)).astype(np.float64)  # as many bits as it has
    found: npt.NDArray[np.float64] = high * 2.0**-53
    return found


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a plan keeps and what its batches cost.

    Attributes:
      examples: examples in the data set.
      kept: examples in every epoch.
      too_long: examples left out because they are longer than the scheme allows.
      too_short: examples left out because they are shorter.
      batches: batches in an epoch.
      tokens: tokens in an epoch, all features, without padding.
      padding_fraction: share of padding in all positions of an epoch's batches.
      packed_rows: rows that the kept examples are packed into; 0 where each is a row.
      mixed_tokens: of several problems that are mixed, tokens in a batch at step 0, on average, by
        their shares; 0 where nothing is mixed.
    """

    examples: int
    kept: int
    too_long: int
    too_short: int
    batches: int
    tokens: int
    padding_fraction: float
    packed_rows: int = 0
    mixed_tokens: float = 0.0

    @property
    def tokens_per_batch(self) -> float:
        """Tokens in a batch, on average; of a mixture at step 0."""
        return self.mixed_tokens or self.tokens / self.batches

    @classmethod
    def mixed(cls, reports: Sequence[PlanReport], shares: Sequence[float]) -> PlanReport:
        """Returns the report of problems that are mixed.

        Args:
          reports: of each.
          shares: of each in the batches at step 0.
        """
        tokens = sum(
            share * report.tokens / report.batches
            for share, report in zip(shares, reports, strict=True)
        )
        return dataclasses.replace(cls.sum(reports), mixed_tokens=tokens)

    @classmethod
    def sum(cls, reports: Sequence[PlanReport]) -> PlanReport:
        """Returns the report of several data sets together."""
        positions = sum(r.tokens / (1.0 - r.padding_fraction) for r in reports if r.tokens)
        counts = {
            field.name: sum(getattr(r, field.name) for r in reports)
            for field in dataclasses.fields(cls)
        }
        padding_fraction = 1.0 - counts["tokens"] / max(1.0, positions)
        return cls(**{**counts, "padding_fraction": padding_fraction})


@dataclasses.dataclass(frozen=True)
class BucketReport:
    """What a bucket's batches are like.

    Attributes:
      boundary: positions; its rows are shorter.  The last one's are as long as may be.
      batch_size: rows in a batch of it.
      rows: in its batches; rows left over by a bucket are in batches of the next one.
      batches: in an epoch.
      padding_fraction: share of padding in the positions of its batches.
    """

    boundary: int
    batch_size: int
    rows: int
    batches: int
    padding_fraction: float


def nothing_left(scheme: BatchingScheme, examples: int, too_long: int, too_short: int) -> str:
    """Says that no example is left, and what to do about it."""
    mends = []
    if too_long:
        mends.append("raise max_length (or batch_size, where max_length is 0)")
    if too_short:
        mends.append("lower min_length")
    return (
        f"none of the {examples:,} examples has a length from {scheme.min_length} to "
        f"{scheme.max_length} tokens ({too_long:,} too long, {too_short:,} too short). "
        f"With --hparams, {' or '.join(mends) or 'nothing helps: there are none'}."
    )


class EpochPlan:
    """Rows of every batch of every epoch: filter, shuffle, bucket by length, cut, shuffle batches.

    Rows are ordered by length, equal lengths in random order; each bucket is cut into batches of
    its size and what is left over goes up into the next bucket, so that an epoch has one short
    batch at most and every kept row exactly once.  All epochs have the same number of batches.

    Args:
      lengths: for each feature the length of every row; tokens, [N].
      scheme: buckets and batch sizes.
      seed: of the shuffling.
      source: what the lengths were read from, for the fingerprint.
      carry: whether what a bucket has left over goes up into the next one; without it each bucket
        may end with a short batch.
      pad_to: the shapes that batches are filled up to; None if each feature is padded to the
        longest row of the batch.  The order does not depend on it.
      counts: how often each row is in an epoch, [N]; None is once (`pipeline/component.py`).
      window: batches that are shuffled together; 0 for all of an epoch.  If an epoch has more, they
        come as they would if shuffled rows filled the buckets, batches of every length all over
        the epoch, and are shuffled among each `window` that follow each other.

    Raises:
      DataError: no row is left.
    """

    def __init__(
        self,
        lengths: Mapping[str, _Numbers],
        scheme: BatchingScheme,
        *,
        seed: int = 0,
        source: str = "",
        carry: bool = True,
        window: int = 0,
        pad_to: FixedShapes | None = None,
        counts: _Numbers | None = None,
    ) -> None:
        self.scheme = scheme
        self.seed = seed
        self._window = window
        self._pad_to = pad_to
        self._lengths = dict(lengths)
        self._source = source
        longest = functools.reduce(np.maximum, self._lengths.values())  # [N]
        too_long = longest > scheme.max_length
        too_short = longest < scheme.min_length
        self._dropped = int(too_long.sum()), int(too_short.sum())
        self._rows: _Numbers | None = None  # all of them
        self._counts = counts
        kept = self._lengths
        if any(self._dropped) or counts is not None:
            self._rows = np.flatnonzero(~(too_long | too_short)).astype(np.int32)
            if counts is not None:
                self._rows = np.repeat(self._rows, counts[self._rows])
            kept = {name: length[self._rows] for name, length in self._lengths.items()}
        self._size = len(longest) if self._rows is None else len(self._rows)
        if not self._size:
            raise DataError(nothing_left(scheme, len(longest), *self._dropped))
        self._groups = Groups.of(kept)
        self._cuts, self._bucket = self._cut(carry=carry)
        self._epoch = functools.lru_cache(maxsize=2)(self._make_epoch)

    def _cut(self, *, carry: bool) -> tuple[_Numbers, _Numbers]:
        """Returns where batches end among the rows sorted by length, and the bucket of each.

        [batches] each.
        """
        sizes = self.scheme.batch_sizes
        counts = np.zeros(len(sizes), np.int64)
        np.add.at(counts, self.scheme.buckets(self._groups.longest), self._groups.counts)
        ends: list[_Numbers] = []
        start = left_over = 0
        for count, size in zip(counts.tolist(), sizes, strict=True):
            batches, left_over = divmod(left_over + count, size)
            cuts = start + size * np.arange(1, batches + 1)
            start += size * batches
            if left_over and not carry:
                start += left_over
                cuts = np.append(cuts, start)
                left_over = 0
            ends.append(cuts)
        if left_over:
            last = max(i for i, cuts in enumerate(ends) if counts[i] or len(cuts))
            ends[last] = np.append(ends[last], start + left_over)
        buckets = np.repeat(np.arange(len(sizes)), [len(cuts) for cuts in ends])
        return np.concatenate(ends), buckets

    @functools.cached_property
    def _shapes(self) -> tuple[_Numbers, dict[str, _Numbers]]:
        """The rows of each batch and for each feature its positions in a row, [batches] each."""
        first, last = self._ends_of_batches
        bounds = np.stack([first, last + 1], axis=1).reshape(-1)  # of each batch, in turn
        widths = {
            name: np.maximum(1, np.maximum.reduceat(np.append(length, 0), bounds)[::2])
            for name, length in self._groups.lengths.items()
        }
        if self._pad_to is None:
            return self._sizes, widths
        longest = functools.reduce(np.maximum, widths.values())
        filled, width = self._pad_to.of_batches(self._sizes, longest)
        return filled, dict.fromkeys(widths, width)

    @functools.cached_property
    def _ends_of_batches(self) -> tuple[_Numbers, _Numbers]:
        """The groups of the first and of the last row of each batch, [batches] each."""
        ends = np.cumsum(self._groups.counts)
        first = np.searchsorted(ends, self._cuts - self._sizes, side="right")
        return first, np.searchsorted(ends, self._cuts, side="left")

    @property
    def _sizes(self) -> _Numbers:
        """Rows of each batch, short ones first.  [batches]."""
        return np.diff(self._cuts, prepend=0)

    @functools.cached_property
    def _costs(self) -> tuple[_Numbers, _Numbers]:
        """The tokens and the positions of each batch, [batches] each."""
        counts = self._groups.counts
        starts = np.cumsum(counts) - counts
        first, last = self._ends_of_batches
        tokens = np.zeros(self.batches_per_epoch, np.int64)
        for length in self._groups.lengths.values():
            before = np.cumsum(length * counts) - length * counts  # tokens before each group
            upto_cut = before[last] + (self._cuts - starts[last]) * length[last]
            upto_start = before[first] + (self._cuts - self._sizes - starts[first]) * length[first]
            tokens += upto_cut - upto_start
        rows, widths = self._shapes
        return tokens, rows * sum(widths.values())

    @functools.cached_property
    def report(self) -> PlanReport:
        """What the plan keeps, drops and pads."""
        tokens = int(self._costs[0].sum())
        too_long, too_short = self._dropped
        return PlanReport(
            examples=len(next(iter(self._lengths.values()))),
            kept=self._size,
            too_long=too_long,
            too_short=too_short,
            batches=self.batches_per_epoch,
            tokens=tokens,
            padding_fraction=1.0 - tokens / self.positions,
        )

    @property
    def positions(self) -> int:
        """Positions of all batches of an epoch, all features, padding counted; at least 1."""
        return max(1, int(self._costs[1].sum()))

    @property
    def buckets(self) -> list[BucketReport]:
        """What the batches of each bucket are like, those without batches left out."""
        limit = int(self._groups.longest.max()) + 1
        found = []
        for bucket, size in enumerate(self.scheme.batch_sizes):
            mine = self._bucket == bucket
            if mine.any():
                tokens, positions = (int(cost[mine].sum()) for cost in self._costs)
                found.append(
                    BucketReport(
                        boundary=[*self.scheme.boundaries, limit][bucket],
                        batch_size=size,
                        rows=int(self._sizes[mine].sum()),
                        batches=int(mine.sum()),
                        padding_fraction=1.0 - tokens / max(1, positions),
                    )
                )
        return found

    @property
    def largest_batch(self) -> _Numbers:
        """The rows of the batch with most positions in all."""
        batch = int(np.argmax(self._costs[1]))
        return self.in_order()[batch]

    @property
    def one_of_each_shape(self) -> list[_Numbers]:
        """The rows of a batch of each shape, those with most positions first."""
        rows, widths = self._shapes
        first = np.unique(np.stack([rows, *widths.values()]), axis=1, return_index=True)[1]
        batches = self.in_order()
        return [batches[i] for i in sorted(first, key=lambda i: -self._costs[1][i])]

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch; the same for every epoch."""
        return len(self._cuts)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A version and a hash of everything the order depends on: a resumed run must find them."""
        digest = hashlib.sha256()
        settings = [self._source, self.seed, dataclasses.asdict(self.scheme), self._window]
        digest.update(json.dumps(settings).encode())
        for name, length in sorted(self._lengths.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(length, dtype=np.int32).tobytes())
        if self._counts is not None:
            digest.update(np.ascontiguousarray(self._counts, dtype=np.int32).tobytes())
        return f"{ORDER_VERSION}-{digest.hexdigest()[:16]}"

    def _order(self, random: npt.NDArray[np.uint64] | None) -> _Numbers:
        """Returns all kept rows, sorted by length, equal lengths by `random` [kept], then number.

        [kept] int32.
        """
        row_bits = self._size.bit_length()
        group_bits = len(self._groups.counts).bit_length()
        bits = min(_NOISE_BITS, 64 - row_bits - group_bits)
        # Keys are all different, so that their order is the same whatever sorts them.
        key = np.arange(self._size, dtype=np.uint64)
        if random is not None:
            key |= (random >> np.uint64(64 - bits)) << np.uint64(row_bits)
        key |= self._groups.of_row.astype(np.uint64) << np.uint64(row_bits + bits)
        key.sort()
        key &= np.uint64((1 << row_bits) - 1)
        order = key.astype(np.int32)
        return order if self._rows is None else self._rows[order]

    def _make_epoch(self, epoch: int) -> tuple[_Numbers, _Numbers]:
        """Returns the rows in order, and the order of the batches."""
        return self._order(noise(self._size, self.seed, epoch, _ROWS)), self._batch_order(epoch)

    def _batch_order(self, epoch: int) -> _Numbers:
        """Returns the order in which the batches come, by their places among all by length."""
        count = self.batches_per_epoch
        drawn = noise(count, self.seed, epoch, _BATCHES)
        if not 0 < self._window < count:
            return np.argsort(drawn, kind="stable")
        shuffled = np.lexsort((drawn, self._bucket))  # in each bucket
        sizes = np.bincount(self._bucket)
        first = np.cumsum(sizes) - sizes
        buckets = self._bucket[shuffled]
        # Batch j of the n of a bucket is full in the jth of n equal parts of the epoch.
        places = (
            np.arange(count) - first[buckets] + uniform(noise(count, self.seed, epoch, _FILLING))
        )
        filled = shuffled[np.argsort(places / sizes[buckets], kind="stable")]
        windows = np.arange(count) // self._window
        return filled[np.lexsort((noise(count, self.seed, epoch, _WINDOWS), windows))]

    def batch(self, index: int) -> _Numbers:
        """Returns the rows of global batch `index`, counted from 0 over all epochs."""
        epoch, position = divmod(index, self.batches_per_epoch)
        rows, batch_order = self._epoch(epoch)
        batch = batch_order[position]
        start = self._cuts[batch - 1] if batch else 0
        return rows[start : self._cuts[batch]]

    def in_order(self) -> list[_Numbers]:
        """Returns the batches of one unshuffled pass, short ones first."""
        return np.split(self._order(None), self._cuts[:-1])


# What decides how a problem's examples become batches.


def overridden(problem: Problem) -> Callable[..., Mapping[str, Any]] | None:
    """Returns a problem's `preprocess_example`; None if it is that of `Problem`."""
    of_class = getattr(type(problem), "preprocess_example", None)
    return None if of_class in (None, Problem.preprocess_example) else problem.preprocess_example


@dataclasses.dataclass(frozen=True)
class Batching:
    """The data hparams, and what the problem makes of them.

    Attributes:
      hparams: the data group.
      means_tokens: whether `batch_size` counts tokens (else examples).
      max_length: tokens of the longest example that is trained on; 0: any.
      length_multiplier: tensor2tensor's `batch_size_multiplier`: multiplies the boundaries of the
        buckets and `max_length`, for data of which so many positions cost as much as one token.
      split_length: positions of the pieces that texts are cut in, each an example; 0: not cut.
      longest_row: positions of the longest row of the training split; it bounds evaluation where
        nothing else does.  0: not known.
      preprocess: the problem's `preprocess_example`, if it overrides that of `Problem`.
    """

    hparams: DataHParams
    means_tokens: bool
    max_length: int
    length_multiplier: int = 1
    split_length: int = 0
    longest_row: int = 0
    preprocess: Callable[..., Mapping[str, Any]] | None = None

    @classmethod
    def of(cls, problem: Problem, hparams: DataHParams, *, longest_row: int = 0) -> Batching:
        """Returns how examples of a problem become batches.

        A `max_length` of 0 is as many tokens as `batch_size`, but only where that counts tokens.
        """
        given = problem.split_length(hparams) or hparams.max_length
        means_tokens = problem.batch_size_means_tokens and not hparams.use_fixed_batch_size
        return cls(
            hparams,
            means_tokens=means_tokens,
            max_length=problem.max_length(hparams) if means_tokens else given,
            length_multiplier=problem.batch_size_multiplier,
            split_length=problem.split_length(hparams),
            longest_row=longest_row,
            preprocess=overridden(problem),
        )

    @property
    def bound(self) -> int:
        """To how many positions an evaluation example is cut; 0: it is not.

        So no batch of evaluation is larger than one of training may be.  Where `batch_size` counts
        examples that is `max_length`, or without it the longest row of the training split.
        """
        if self.split_length or (self.hparams.eval_drop_long_sequences and self.max_length):
            return 0  # what is longer is in pieces, or left out
        if not self.means_tokens and not self.max_length:
            return self.longest_row
        return max(self._longest, self.max_length) * self.length_multiplier

    @property
    def packed_length(self) -> int:
        """Positions of a packed row.

        Raises:
          HParamsError: `batch_size` counts examples, and no `max_length` is given.
        """
        if not self.max_length:
            raise HParamsError(
                "pack_dataset makes rows of max_length tokens. Give it: --hparams=max_length=256."
            )
        return self.max_length * self.length_multiplier

    @property
    def training(self) -> BatchingScheme:
        """The buckets of training: longer and shorter examples are left out."""
        return self._scheme(self.max_length, self.hparams.min_length)

    @property
    def evaluation(self) -> BatchingScheme:
        """The buckets of evaluation, which keeps all but what `eval_drop_long_sequences` drops."""
        if self.hparams.eval_drop_long_sequences:
            return self._scheme(self.max_length, 0)
        return self._scheme(self._longest, 0)

    @property
    def _longest(self) -> int:
        """Tokens of the longest example of an evaluation; 0: any.

        A batch of training has `batch_size` tokens, or is one example of `max_length`.
        """
        return max(self.max_length, self.hparams.batch_size) if self.means_tokens else 0

    def _scheme(self, max_length: int, min_length: int) -> BatchingScheme:
        hparams, multiplier = self.hparams, self.length_multiplier
        if not self.means_tokens:
            limit = max_length * multiplier or NO_LIMIT
            return BatchingScheme((), (hparams.batch_size,), min_length, limit)
        return batching_scheme(
            hparams.batch_size,
            max_length,
            hparams.min_length_bucket,
            hparams.length_bucket_step,
            drop_long_sequences=True,
            length_multiplier=multiplier,
            min_length=min_length,
        )
