"""Order of training, as a pure function of lengths, scheme, seed and epoch.

There is no random state to store: `EpochPlan.batch(k)` returns the rows of global batch k whatever
came before.  A run resumes at any step given its number, on any number of processes and workers.
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

from t2t_torch.data.length_index import Groups
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.problem import Problem
from t2t_torch.reports.column_statistics import Bucket

if TYPE_CHECKING:
    from t2t_torch.features.feature import ExampleChange
    from t2t_torch.hparam import DataHParams


NO_LIMIT = 10**9  # tensor2tensor's "any length"


@dataclasses.dataclass(frozen=True)
class BatchingScheme:
    """Length buckets and their batch sizes.

    tensor2tensor's formulas (`utils/data_reader.py`), checked by golden vectors.  One step is
    omitted on purpose: tensor2tensor rounds each batch size down to a divisor of a common window,
    which its `tf.data` operator needed and which leaves up to a quarter of the token budget unused.

    Attributes:
      boundaries: ascending lengths in tokens; bucket i holds `boundaries[i-1] <= length <
        boundaries[i]`, the last bucket all lengths from the last boundary on.
      batch_sizes: number of examples in a batch of each bucket, [len(boundaries) + 1].
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
    """Returns ascending boundaries that grow by a factor of about `length_bucket_step`.

    Args:
      max_length: exclusive upper bound of boundaries; tokens.
      min_length: first boundary; tokens.
      length_bucket_step: growth factor of boundaries, > 1.
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
      batch_size: number of tokens in a batch, including padding.
      max_length: number of tokens in the longest example; 0 means `batch_size`.
      min_length_bucket: first boundary; tokens.
      length_bucket_step: growth factor of boundaries.
      drop_long_sequences: True to drop examples longer than `max_length`.
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


@dataclasses.dataclass(frozen=True)
class FixedShapes:
    """Shapes of batches that are padded to the boundary and the number of rows of a bucket.

    Attributes:
      scheme: length buckets.
      fills_rows: True to add rows of padding to a short batch; they have no weight in a loss over
        sequences, but would in one over rows.
    """

    scheme: BatchingScheme
    fills_rows: bool

    def of(self, rows: int, longest: int) -> tuple[int, int]:
        """Returns the rows and positions of a batch.

        Args:
          rows: number of rows before padding.
          longest: positions of the longest row.
        """
        filled, widths = self.of_batches(np.asarray([rows]), np.asarray([longest]))
        return int(filled[0]), int(widths[0])

    def of_batches(self, rows: np.ndarray, longest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Vectorized `of`.  Two arrays of [batches] integers -> two of [batches] integers.

        A batch has the shape of its bucket: that of its longest row, or a later one, since the
        remainder of a bucket is in a batch of a later bucket, with the number of rows of that.
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
_NOISE_BITS = 32  # bits that order rows of equal lengths, if they fit
_PIECE = 1 << 18  # rows whose keys are made at once
_Numbers = npt.NDArray[Any]


def noise(count: int, seed: int, block: int, stream: int, part: int = 0) -> npt.NDArray[np.uint64]:
    """Returns `count` random 64-bit integers.

    The raw output of Philox is the same in all NumPy versions, unlike `Generator.permutation`,
    whose stream may change: the order must not change if a run resumes after an upgrade.

    Args:
      count: number of integers.
      seed: seed of the run.
      block: index of the epoch, or of another block of draws.
      stream: index of the purpose.
      part: index of a part of the data that is drawn on its own.
    """
    return noise_source(seed, block, stream, part).random_raw(count)


def noise_source(seed: int, block: int, stream: int, part: int = 0) -> np.random.Philox:
    """Returns the generator of `noise`, to draw it in pieces."""
    return np.random.Philox(key=seed % 2**64, counter=[0, part, stream, block])


def uniform(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Converts random 64-bit integers to numbers in [0, 1)."""
    high = (raw >> np.uint64(11)).astype(np.float64)  # as many bits as it has
    numbers: npt.NDArray[np.float64] = high * 2.0**-53
    return numbers


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """Statistics of a plan: kept examples and cost of batches.

    Attributes:
      examples: examples in the data set.
      kept: examples in every epoch.
      too_long: examples left out because they are longer than the scheme allows.
      too_short: examples left out because they are shorter.
      batches: batches in an epoch.
      tokens: tokens in an epoch, all features, without padding.
      padding_fraction: share of padding in all positions of an epoch's batches.
      packed_rows: rows of packed examples; 0 without packing.
      mixed_tokens: mean number of tokens in a batch of a mixture at step 0; 0 without a mixture.
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
        """Mean number of tokens in a batch; for a mixture at step 0."""
        return self.mixed_tokens or self.tokens / self.batches

    @classmethod
    def mixed(cls, reports: Sequence[PlanReport], shares: Sequence[float]) -> PlanReport:
        """Returns the report of a mixture of problems.

        Args:
          reports: report of each problem.
          shares: proportion of the batches of each problem at step 0.
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


def rows_within(
    lengths: Mapping[str, _Numbers], scheme: BatchingScheme, counts: _Numbers | None
) -> tuple[_Numbers, int, int]:
    """Returns the rows that a scheme keeps, and the numbers of too long and too short ones.

    Args:
      lengths: lengths of all rows by feature; the longest decides.
      scheme: minimum and maximum length.
      counts: how often each row is repeated; None for once.

    Raises:
      DataError: no row is left.
    """
    outside = rows_outside(lengths, scheme)
    too_long, too_short = (int(each.sum()) for each in outside)
    rows: _Numbers = np.arange(len(outside[0]), dtype=np.int32)
    if too_long or too_short:
        rows = rows[~np.logical_or(*outside)]
    if counts is not None:
        rows = np.repeat(rows, counts[rows])
    check_kept(len(rows), len(outside[0]), scheme, too_long, too_short)
    return rows, too_long, too_short


def check_kept(
    kept: int, examples: int, scheme: BatchingScheme, too_long: int, too_short: int
) -> None:
    """Raises DataError if a scheme keeps none of the examples."""
    if kept:
        return
    remedies = []
    if too_long:
        remedies.append("raise max_length (or batch_size, where max_length is 0)")
    if too_short:
        remedies.append("lower min_length")
    raise DataError(
        f"none of the {examples:,} examples has a length from {scheme.min_length} to "
        f"{scheme.max_length} tokens ({too_long:,} too long, {too_short:,} too short). "
        f"With --hparams, {' or '.join(remedies) or 'nothing helps: there are none'}."
    )


def rows_outside(lengths: Mapping[str, _Numbers], scheme: BatchingScheme) -> tuple[Any, Any]:
    """Returns which rows are too long for a scheme, and which too short.  [N] booleans each."""
    longest = functools.reduce(np.maximum, lengths.values())  # [N]
    return longest > scheme.max_length, longest < scheme.min_length


class BatchTable:
    """Sizes of the batches of an epoch: groups of rows sorted by length, cut into batches.

    It needs no rows, only how many have equal lengths, and is the same for every epoch.

    Args:
      groups: the rows that are kept.
      scheme: buckets and batch sizes.
      examples: number of all rows.
      dropped: numbers of rows that are too long and too short.
      carry: as of `EpochPlan`.
      pad_to: as of `EpochPlan`.
    """

    def __init__(
        self,
        groups: Groups,
        scheme: BatchingScheme,
        examples: int,
        dropped: tuple[int, int],
        *,
        carry: bool = True,
        pad_to: FixedShapes | None = None,
    ) -> None:
        self.groups = groups
        self.scheme = scheme
        self._examples = examples
        self._dropped = dropped
        self._pad_to = pad_to
        self._cuts, self._bucket = self._cut(carry=carry)

    def _cut(self, *, carry: bool) -> tuple[_Numbers, _Numbers]:
        """Returns the end of each batch in the rows sorted by length, and its bucket.

        Shape: [batches] each.
        """
        sizes = self.scheme.batch_sizes
        counts = np.zeros(len(sizes), np.int64)
        np.add.at(counts, self.scheme.buckets(self.groups.longest), self.groups.counts)
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
    def shapes(self) -> tuple[_Numbers, dict[str, _Numbers]]:
        """Number of rows of each batch and its positions per row by feature, [batches] each."""
        first, last = self._ends_of_batches
        bounds = np.stack([first, last + 1], axis=1).reshape(-1)  # of each batch, in turn
        widths = {
            name: np.maximum(1, np.maximum.reduceat(np.append(length, 0), bounds)[::2])
            for name, length in self.groups.lengths.items()
        }
        if self._pad_to is None:
            return self._sizes, widths
        longest = functools.reduce(np.maximum, widths.values())
        filled, width = self._pad_to.of_batches(self._sizes, longest)
        return filled, dict.fromkeys(widths, width)

    @functools.cached_property
    def _ends_of_batches(self) -> tuple[_Numbers, _Numbers]:
        """Groups of the first and of the last row of each batch, [batches] each."""
        ends = np.cumsum(self.groups.counts)
        first = np.searchsorted(ends, self._cuts - self._sizes, side="right")
        return first, np.searchsorted(ends, self._cuts, side="left")

    @property
    def _sizes(self) -> _Numbers:
        """Rows of each batch, short ones first.  [batches]."""
        return np.diff(self._cuts, prepend=0)

    @functools.cached_property
    def costs(self) -> tuple[_Numbers, _Numbers]:
        """The tokens and the positions of each batch, [batches] each."""
        counts = self.groups.counts
        starts = np.cumsum(counts) - counts
        first, last = self._ends_of_batches
        tokens = np.zeros(self.batches_per_epoch, np.int64)
        for length in self.groups.lengths.values():
            before = np.cumsum(length * counts) - length * counts  # tokens before each group
            upto_cut = before[last] + (self._cuts - starts[last]) * length[last]
            upto_start = before[first] + (self._cuts - self._sizes - starts[first]) * length[first]
            tokens += upto_cut - upto_start
        rows, widths = self.shapes
        return tokens, rows * sum(widths.values())

    @functools.cached_property
    def report(self) -> PlanReport:
        """Statistics of kept, dropped and padded data."""
        tokens = int(self.costs[0].sum())
        too_long, too_short = self._dropped
        return PlanReport(
            examples=self._examples,
            kept=int(self.groups.counts.sum()),
            too_long=too_long,
            too_short=too_short,
            batches=self.batches_per_epoch,
            tokens=tokens,
            padding_fraction=1.0 - tokens / self.positions,
        )

    @property
    def positions(self) -> int:
        """Positions of all batches of an epoch, all features, including padding; at least 1."""
        return max(1, int(self.costs[1].sum()))

    @property
    def buckets(self) -> list[Bucket]:
        """Returns the statistics of each bucket with batches."""
        boundaries = self.scheme.boundaries
        limits = [0, *boundaries, int(self.groups.longest.max(initial=0)) + 1]
        result = []
        for bucket, size in enumerate(self.scheme.batch_sizes):
            in_bucket = self._bucket == bucket
            if in_bucket.any():
                tokens, positions = (int(cost[in_bucket].sum()) for cost in self.costs)
                result.append(
                    Bucket(
                        low=limits[bucket],
                        high=limits[bucket + 1] - 1 if bucket < len(boundaries) else None,
                        batch_size=size,
                        rows=int(self._sizes[in_bucket].sum()),
                        batches=int(in_bucket.sum()),
                        tokens=tokens,
                        positions=positions,
                        boundary=limits[bucket + 1],
                    )
                )
        return result

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch; the same for every epoch."""
        return len(self._cuts)


class EpochPlan(BatchTable):
    """Rows of every batch of every epoch: filter, shuffle, bucket, split, shuffle batches.

    Rows are ordered by length, equal lengths in random order.  Each bucket is split into batches of
    its size and the remainder moves to the next bucket, so an epoch has at most one short batch and
    every kept row exactly once.  All epochs have the same number of batches.

    Args:
      lengths: lengths of all rows by feature; tokens, [N].
      scheme: buckets and batch sizes.
      seed: seed of the shuffle.
      source: identity of the data, for the fingerprint.
      carry: True to move the remainder of a bucket to the next one; False: each bucket may end with
        a short batch.
      pad_to: shapes to pad batches to; None to pad each feature to the longest row of the batch.
        The order does not depend on it.
      counts: count of each row per epoch, [N]; None is 1 (`pipeline/training_split.py`).
      window: number of consecutive batches to shuffle together; 0 for the whole epoch.  If an epoch
        has more, batches are first ordered as if shuffled rows filled the buckets, with all lengths
        spread over the epoch, then shuffled within each window.
      part: index of the part of the data that the rows are, of which each has its own noise.

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
        part: int = 0,
    ) -> None:
        self.seed = seed
        self._window = window
        self.lengths = dict(lengths)
        self._source = source
        rows, too_long, too_short = rows_within(lengths, scheme, counts)
        dropped = too_long, too_short
        self._rows = rows if any(dropped) or counts is not None else None  # None: all of them
        self._counts = counts
        self._size = len(rows)
        self._part = part
        self._noise = functools.partial(noise, seed=seed, part=part)
        del rows
        kept_lengths = self.lengths
        if self._rows is not None:
            kept_lengths = {name: each[self._rows] for name, each in self.lengths.items()}
        groups, examples = Groups.of(kept_lengths), len(next(iter(self.lengths.values())))
        super().__init__(groups, scheme, examples, dropped, carry=carry, pad_to=pad_to)

    @property
    def largest_batch(self) -> _Numbers:
        """Returns the rows of the batch with the most positions."""
        return self.in_order()[int(np.argmax(self.costs[1]))]

    @property
    def one_of_each_shape(self) -> list[_Numbers]:
        """Returns the rows of a batch of each shape, those with the most positions first."""
        rows, widths = self.shapes
        first = np.unique(np.stack([rows, *widths.values()]), axis=1, return_index=True)[1]
        batches = self.in_order()
        return [batches[i] for i in sorted(first, key=lambda i: -self.costs[1][i])]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Version and hash of everything the order depends on; must be equal in a resumed run."""
        digest = hashlib.sha256()
        settings = [self._source, self.seed, dataclasses.asdict(self.scheme), self._window]
        digest.update(json.dumps(settings).encode())
        for name, length in sorted(self.lengths.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(length, dtype=np.int32).tobytes())
        if self._counts is not None:
            digest.update(np.ascontiguousarray(self._counts, dtype=np.int32).tobytes())
        return f"{ORDER_VERSION}-{digest.hexdigest()[:16]}"

    def _order(self, random: np.random.Philox | None) -> _Numbers:
        """Returns all kept rows, sorted by length, equal lengths by `random`, then number.

        [kept] int32.
        """
        row_bits = self._size.bit_length()
        group_bits = len(self.groups.counts).bit_length()
        bits = min(_NOISE_BITS, 64 - row_bits - group_bits)
        # Keys are distinct, so their order does not depend on the sorting algorithm.  They are made
        # in pieces, since they are the most memory of a plan.
        key = np.empty(self._size, np.uint64)
        for start in range(0, self._size, _PIECE):
            piece = self.groups.of_row[start : start + _PIECE].astype(np.uint64)
            piece <<= np.uint64(row_bits + bits)
            if random is not None:
                drawn = random.random_raw(len(piece)) >> np.uint64(64 - bits)
                piece |= drawn << np.uint64(row_bits)
            piece |= np.arange(start, start + len(piece), dtype=np.uint64)
            key[start : start + len(piece)] = piece
        key.sort()
        key &= np.uint64((1 << row_bits) - 1)
        order = key.astype(np.int32)
        return order if self._rows is None else self._rows[order]

    def order(self, epoch: int) -> Callable[[int], _Numbers]:
        """Returns a function from the position of a batch in an epoch to its rows."""
        rows = self._order(noise_source(self.seed, epoch, _ROWS, self._part))
        batches, cuts = self._batch_order(epoch), self._cuts  # the plan itself need not be held

        def rows_of(position: int) -> _Numbers:
            batch = batches[position]
            return rows[cuts[batch - 1] if batch else 0 : cuts[batch]]

        return rows_of

    @functools.cached_property
    def _orders(self) -> Callable[[int], Callable[[int], _Numbers]]:
        """The order of an epoch, of which two are held."""
        return functools.lru_cache(maxsize=2)(self.order)

    def _batch_order(self, epoch: int) -> _Numbers:
        """Returns the order of the batches, as indices into those sorted by length."""
        count = self.batches_per_epoch
        drawn = self._noise(count, block=epoch, stream=_BATCHES)
        if not 0 < self._window < count:
            return np.argsort(drawn, kind="stable")
        shuffled = np.lexsort((drawn, self._bucket))  # in each bucket
        sizes = np.bincount(self._bucket)
        first = np.cumsum(sizes) - sizes
        buckets = self._bucket[shuffled]
        # Batch j of the n batches of a bucket is complete in part j of n equal parts of the epoch.
        within = uniform(self._noise(count, block=epoch, stream=_FILLING))
        places = np.arange(count) - first[buckets] + within
        filled = shuffled[np.argsort(places / sizes[buckets], kind="stable")]
        windows = np.arange(count) // self._window
        return filled[np.lexsort((self._noise(count, block=epoch, stream=_WINDOWS), windows))]

    def batch(self, index: int) -> _Numbers:
        """Returns the rows of global batch `index`, counted from 0 over all epochs."""
        epoch, position = divmod(index, self.batches_per_epoch)
        return self._orders(epoch)(position)

    def in_order(self) -> list[_Numbers]:
        """Returns the batches of one unshuffled pass, short ones first."""
        return np.split(self._order(None), self._cuts[:-1])


@dataclasses.dataclass(frozen=True)
class Batching:
    """Batching settings: the data hparams, adapted to a problem.

    Attributes:
      hparams: the data group.
      means_tokens: True if `batch_size` counts tokens, False if examples.
      max_length: tokens of the longest training example; 0: no limit.
      length_multiplier: tensor2tensor's `batch_size_multiplier`: number of positions that cost as
        much as one token; multiplies the boundaries of the buckets and `max_length`.
      split_length: positions of the pieces of a text, each an example; 0: texts are not split.
      longest_row: positions of the longest row of the training split, which limits evaluation if
        nothing else does; 0: unknown.
      preprocess: the problem's `preprocessing`, called for each example that is read.
      most_growth: the problem's, of `preprocess`.
    """

    hparams: DataHParams
    means_tokens: bool
    max_length: int
    length_multiplier: int = 1
    split_length: int = 0
    longest_row: int = 0
    preprocess: Callable[..., Mapping[str, Any]] | ExampleChange | None = None
    most_growth: float = 1.0

    @classmethod
    def of(cls, problem: Problem, hparams: DataHParams, *, longest_row: int = 0) -> Batching:
        """Returns the batching settings of a problem.

        A `max_length` of 0 means `batch_size` if that counts tokens.
        """
        split_length = hparams.split_to_length or problem.chop_length
        max_length = split_length or hparams.max_length
        means_tokens = problem.batch_size_means_tokens and not hparams.use_fixed_batch_size
        return cls(
            hparams,
            means_tokens=means_tokens,
            max_length=problem.max_length(hparams) if means_tokens else max_length,
            length_multiplier=problem.batch_size_multiplier,
            split_length=split_length,
            longest_row=longest_row,
            preprocess=problem.preprocessing(hparams),
            most_growth=problem.most_growth,
        )

    @property
    def bound(self) -> int:
        """Length to which evaluation examples are truncated, in positions; 0: no limit.

        It keeps batches of evaluation within the size of training batches.  If `batch_size` counts
        examples it is `max_length`, or else the longest row of the training split.
        """
        if self.split_length or (self.hparams.eval_drop_long_sequences and self.max_length):
            return 0  # longer examples are split or dropped
        if not self.means_tokens and not self.max_length:
            return self.longest_row
        bound = max(self._longest, self.max_length) * self.length_multiplier
        return min(bound, self.hparams.max_positions or bound)

    @property
    def packed_length(self) -> int:
        """Positions of a packed row.

        Raises:
          HParamsError: `batch_size` counts examples, and `max_length` is not set.
        """
        if not self.max_length:
            raise HParamsError(
                "pack_dataset makes rows of max_length tokens. Give it: --hparams=max_length=256."
            )
        return self.max_length * self.length_multiplier

    @property
    def training(self) -> BatchingScheme:
        """Buckets of training, which drops longer and shorter examples."""
        return self._scheme(self.max_length, self.hparams.min_length)

    @property
    def evaluation(self) -> BatchingScheme:
        """Buckets of evaluation, where only `eval_drop_long_sequences` drops examples."""
        if self.hparams.eval_drop_long_sequences:
            return self._scheme(self.max_length, 0)
        return self._scheme(self._longest, 0)

    @property
    def _longest(self) -> int:
        """Tokens of the longest evaluation example; 0: no limit.

        A training batch has `batch_size` tokens, or is one example of `max_length`.
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
