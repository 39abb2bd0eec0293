"""Batches for training and evaluation, read ahead of the model.

The order is the plan's; torchdata's nodes do the reading ahead.  Their own state is not used: a
position is the number of global batches consumed, and that is all there is to store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from torchdata import nodes

from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme, training_scheme
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.plan import EpochPlan, PlanReport

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.hparam import DataHParams

_PREFETCH = 8  # batches read ahead of the model


def _max_lengths(hparams: DataHParams) -> dict[str, int]:
    limits = {"inputs": hparams.max_input_seq_length, "targets": hparams.max_target_seq_length}
    return {feature: limit for feature, limit in limits.items() if limit}


def _lengths(
    shards: Shards, columns: Mapping[str, str], limits: Mapping[str, int]
) -> dict[str, np.ndarray]:
    stored = shards.lengths
    return {
        feature: np.minimum(stored[column], limits[feature])
        if feature in limits
        else stored[column]
        for feature, column in columns.items()
    }


class TrainBatches:
    """Endless shuffled batches of one process, from any position.

    Iterating starts at `start` anew each time.  Rank r of w takes the global batches
    `start + r, start + r + w, ...`.

    Args:
      shards: the training split.
      columns: for each feature of a batch, the stored column it is read from.
      hparams: the data group.
      means_tokens: whether `batch_size` counts tokens (else examples).
      max_length: longer examples are dropped; tokens, from `Problem.max_length`.
      seed: of the order.
      start: global batches already consumed by all processes.
      rank: of this process.
      world_size: processes.
    """

    def __init__(
        self,
        shards: Shards,
        columns: Mapping[str, str],
        hparams: DataHParams,
        *,
        means_tokens: bool,
        max_length: int,
        seed: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        scheme = training_scheme(hparams, means_tokens=means_tokens, max_length=max_length)
        limits = _max_lengths(hparams)
        self.plan = EpochPlan(
            _lengths(shards, columns, limits), scheme, seed=seed, source=shards.fingerprint
        )
        self._collate = Collator(
            shards, columns, max_lengths=limits, pad_to=scheme if hparams.pad_batch else None
        )
        self._start = start + rank
        self._step = world_size

    @property
    def report(self) -> PlanReport:
        """What the plan keeps, drops and pads."""
        return self.plan.report

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything the order depends on."""
        return self.plan.fingerprint

    def _rows(self) -> Iterator[np.ndarray]:
        index = self._start
        while True:
            yield self.plan.batch(index)
            index += self._step

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches for ever."""
        return _read_ahead(self._rows(), self._collate)


class EvalBatches:
    """One pass in fixed order, nothing dropped unless `eval_drop_long_sequences` says so.

    Args:
      shards: the split.
      columns: for each feature of a batch, the stored column it is read from.
      hparams: the data group.
      means_tokens: whether `batch_size` counts tokens (else examples).
      max_length: tokens, from `Problem.max_length`; an example beyond it gets a batch of its own.
      rank: of this process: it takes batches rank, rank + world_size, ...
      world_size: processes.
    """

    def __init__(
        self,
        shards: Shards,
        columns: Mapping[str, str],
        hparams: DataHParams,
        *,
        means_tokens: bool,
        max_length: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        scheme = training_scheme(hparams, means_tokens=means_tokens, max_length=max_length)
        if not hparams.eval_drop_long_sequences:
            scheme = _keep_all(scheme)
        limits = _max_lengths(hparams)
        lengths = _lengths(shards, columns, limits)
        plan = EpochPlan(lengths, scheme, source=shards.fingerprint, carry=False)
        self._batches = plan.in_order()[rank::world_size]
        self._collate = Collator(shards, columns, max_lengths=limits)

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""
        return _read_ahead(iter(self._batches), self._collate)


def _keep_all(scheme: BatchingScheme) -> BatchingScheme:
    """Returns the scheme with one more bucket, for examples longer than every other, one a
    batch.
    """
    if not scheme.boundaries:
        return BatchingScheme((), scheme.batch_sizes, 0, NO_LIMIT)
    return BatchingScheme(
        (*scheme.boundaries, scheme.max_length + 1), (*scheme.batch_sizes, 1), 0, NO_LIMIT
    )


def _read_ahead(rows: Iterator[np.ndarray], collate: Collator) -> Iterator[Batch]:
    node: nodes.BaseNode[Batch] = nodes.Prefetcher(
        nodes.Mapper(nodes.IterableWrapper(rows), collate), prefetch_factor=_PREFETCH
    )
    node.reset()
    return iter(node)
