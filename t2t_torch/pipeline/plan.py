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
from collections.abc import Mapping

import numpy as np

from t2t_torch.errors import DataError
from t2t_torch.pipeline.bucketing import BatchingScheme

_BATCH_STREAM = 1  # the noise that orders batches; stream 0 orders examples


def _noise(count: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """Returns `count` random uint64.

    The raw output of Philox is fixed for all NumPy versions, unlike `Generator.permutation`, whose
    stream NumPy may change: an order must not move under a run that is resumed after an upgrade.
    """
    bits = np.random.Philox(key=seed % 2**64, counter=[0, 0, stream, epoch])
    return bits.random_raw(count)


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a plan keeps and what its batches cost.

    Attributes:
      examples: rows in the data set.
      kept: rows in every epoch.
      too_long: rows dropped because they are longer than the scheme allows.
      too_short: rows dropped because they are shorter.
      batches: batches in an epoch.
      tokens: tokens in an epoch, all features, without padding.
      padding_fraction: share of padding in all positions of an epoch's batches.
    """

    examples: int
    kept: int
    too_long: int
    too_short: int
    batches: int
    tokens: int
    padding_fraction: float


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

    Raises:
      DataError: no row is left.
    """

    def __init__(
        self,
        lengths: Mapping[str, np.ndarray],
        scheme: BatchingScheme,
        *,
        seed: int = 0,
        source: str = "",
        carry: bool = True,
    ) -> None:
        self.scheme = scheme
        self.seed = seed
        self._lengths = dict(lengths)
        self._source = source
        longest = functools.reduce(np.maximum, self._lengths.values())  # [N]
        too_long = longest > scheme.max_length
        too_short = longest < scheme.min_length
        self._rows = np.flatnonzero(~(too_long | too_short))
        if not len(self._rows):
            raise DataError(
                f"none of the {len(longest)} examples of {source or 'the data'} has a length from "
                f"{scheme.min_length} to {scheme.max_length} tokens "
                f"({int(too_long.sum())} too long, {int(too_short.sum())} too short). "
                "Raise it with --hparams=max_length=N, or generate shorter examples."
            )
        kept = [longest[self._rows], *(length[self._rows] for length in self._lengths.values())]
        # Rows that agree in every length form a group; groups are numbered by (longest,
        # lengths...).
        _, group = np.unique(np.stack(kept), axis=1, return_inverse=True)
        self._group = group.reshape(-1).astype(np.uint64)  # [kept]
        self._cuts = self._cut(kept[0], carry=carry)
        self._dropped = int(too_long.sum()), int(too_short.sum())
        self._epoch = functools.lru_cache(maxsize=2)(self._make_epoch)

    def _cut(self, lengths: np.ndarray, *, carry: bool) -> np.ndarray:
        """Returns where batches end among the rows sorted by length.  [kept] -> [batches]."""
        sizes = self.scheme.batch_sizes
        counts = np.bincount(self.scheme.buckets(lengths), minlength=len(sizes))
        ends: list[np.ndarray] = []
        start = left_over = 0
        for count, size in zip(counts.tolist(), sizes, strict=True):
            batches, left_over = divmod(left_over + count, size)
            ends.append(start + size * np.arange(1, batches + 1))
            start += size * batches
            if left_over and not carry:
                start += left_over
                ends.append(np.asarray([start]))
                left_over = 0
        if left_over:
            ends.append(np.asarray([len(lengths)]))
        return np.concatenate(ends)

    @functools.cached_property
    def report(self) -> PlanReport:
        """What the plan keeps, drops and pads."""
        order = self._order(0)
        starts = np.concatenate([[0], self._cuts[:-1]])
        tokens = positions = 0
        for length in self._lengths.values():
            ordered = length[order]
            tokens += int(ordered.sum(dtype=np.int64))
            positions += int(
                (np.maximum.reduceat(ordered, starts) * np.diff(self._cuts, prepend=0)).sum()
            )
        too_long, too_short = self._dropped
        return PlanReport(
            examples=len(order) + too_long + too_short,
            kept=len(order),
            too_long=too_long,
            too_short=too_short,
            batches=self.batches_per_epoch,
            tokens=tokens,
            padding_fraction=1.0 - tokens / max(1, positions),
        )

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch; the same for every epoch."""
        return len(self._cuts)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything the order depends on: a resumed run must find the same one."""
        digest = hashlib.sha256()
        digest.update(
            json.dumps([self._source, self.seed, dataclasses.asdict(self.scheme)]).encode()
        )
        for name, length in sorted(self._lengths.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(length, dtype=np.int32).tobytes())
        return digest.hexdigest()[:16]

    def _order(self, epoch: int) -> np.ndarray:
        """Returns all kept rows, sorted by length, equal lengths shuffled.  [kept]."""
        noise = _noise(len(self._rows), self.seed, epoch, stream=0)
        key = (self._group << np.uint64(32)) | (noise >> np.uint64(32))
        return self._rows[np.argsort(key, kind="stable")]

    def _make_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows in order, and the order of the batches."""
        noise = _noise(self.batches_per_epoch, self.seed, epoch, stream=_BATCH_STREAM)
        return self._order(epoch), np.argsort(noise, kind="stable")

    def batch(self, index: int) -> np.ndarray:
        """Returns the rows of global batch `index`, counted from 0 over all epochs."""
        epoch, position = divmod(index, self.batches_per_epoch)
        rows, batch_order = self._epoch(epoch)
        batch = batch_order[position]
        start = self._cuts[batch - 1] if batch else 0
        return rows[start : self._cuts[batch]]

    def in_order(self) -> list[np.ndarray]:
        """Returns the batches of one unshuffled pass, short ones first."""
        order = self._rows[np.argsort(self._group, kind="stable")]
        return np.split(order, self._cuts[:-1])
