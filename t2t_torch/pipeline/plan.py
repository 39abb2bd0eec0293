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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.pipeline.bucketing import BatchingScheme
from t2t_torch.pipeline.fixed_shapes import FixedShapes
from t2t_torch.pipeline.groups import Groups

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
      counts: how often each row is in an epoch, [N]; None is once (`pipeline/bagging.py`).
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
