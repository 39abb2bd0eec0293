"""Order of training of more rows than are sorted at once: an epoch plan for each block of shards.

Like that of `EpochPlan`, the order is a pure function of lengths, scheme, seed and epoch.  The
batches of all blocks are counted from their lengths alone; the rows of two blocks are held.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.data.length_index import Groups, LengthIndex
from t2t_torch.errors import DataError
from t2t_torch.features.feature import select_measured
from t2t_torch.hparam import EVERY_ROW
from t2t_torch.pipeline.plan import (
    ORDER_VERSION,
    BatchingScheme,
    BatchTable,
    EpochPlan,
    FixedShapes,
    PlanReport,
    check_kept,
    noise,
    rows_outside,
)
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.reports.column_statistics import Bucket

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.plan import Batching

_BLOCKS = 7  # stream of noise; the plan of an epoch has 0 to 3, mixtures and bagging 4 to 6

_Numbers = npt.NDArray[Any]


def cut_blocks(shard_rows: Sequence[int], size: int) -> list[range]:
    """Returns blocks of consecutive shards with at most `size` rows, or a single larger shard.

    Args:
      shard_rows: number of rows of each shard.
      size: maximum number of rows; 0 for one block of all.
    """
    edges, rows = [0], 0
    for shard, count in enumerate(shard_rows):
        if size and rows and rows + count > size:
            edges.append(shard)
            rows = 0
        rows += count
    return [range(*edge) for edge in itertools.pairwise([*edges, len(shard_rows)])]


@dataclasses.dataclass(frozen=True, eq=False)
class BlockLengths:
    """Blocks of shards, and the lengths of their rows.

    Attributes:
      blocks: shards of each block.
      shard_rows: number of rows of each shard.
      rows: returns the lengths of each row of shards `first` to `last - 1`, by feature, [rows].
      counts: returns their lengths, which may repeat, and the number of rows of each, [groups].
    """

    blocks: Sequence[range]
    shard_rows: Sequence[int]
    rows: Callable[[int, int], Mapping[str, _Numbers]]
    counts: Callable[[int, int], tuple[Mapping[str, _Numbers], _Numbers]]

    @classmethod
    def of(cls, shards: Shards, features: Features, batching: Batching) -> BlockLengths | None:
        """Returns the blocks of a split; None if all its rows are planned together.

        They are if they are one block, or if rows are packed, split, sampled or left out.

        Args:
          shards: shards of the split.
          features: features of the problem.
          batching: batching settings.
        """
        hparams = batching.hparams
        is_sampled = hparams.bagging_share or hparams.bagging_seed or hparams.fold
        if hparams.pack_dataset or batching.split_length or is_sampled not in (0, "", EVERY_ROW):
            return None
        blocks = cut_blocks(shards.shard_rows, hparams.shuffle_block_size)
        if len(blocks) < 2:
            return None
        limits = LengthLimits.of(features, hparams)
        columns = [features.columns[name] for name in select_measured(features.all)]
        index = LengthIndex(shards, columns)

        def positions(lengths: Mapping[str, _Numbers], count: int) -> dict[str, _Numbers]:
            # A row without a sequence has one position.
            others = dict.fromkeys(features.columns.values(), np.broadcast_to(np.int32(1), count))
            return limits.lengths({**others, **lengths}, features.all, features.columns)

        def rows(first: int, last: int) -> dict[str, _Numbers]:
            lengths = shards.lengths_of(first, last, columns)
            return positions(lengths, sum(shards.shard_rows[first:last]))

        def counts(first: int, last: int) -> tuple[dict[str, _Numbers], _Numbers]:
            lengths, counted = index.counts(first, last)
            return positions(lengths, len(counted)), counted

        return cls(blocks, shards.shard_rows, rows, counts)

    @functools.cached_property
    def edges(self) -> list[int]:
        """First row of each block, and the number of all rows, [blocks + 1]."""
        ends = [0, *itertools.accumulate(self.shard_rows)]
        return [0, *(ends[block.stop] for block in self.blocks)]


class BlockPlan:
    """Rows of every batch of every epoch, in blocks of consecutive shards.

    Each epoch has all blocks in a random order, and each block is an `EpochPlan` of its rows with
    noise of its own: at most one short batch, and every kept row exactly once.  All epochs have the
    same number of batches.  While a block is trained on, a thread plans the next.

    Args:
      lengths: lengths of the rows, and the blocks.
      scheme: buckets and batch sizes.
      seed: seed of the shuffle.
      source: identity of the data, for the fingerprint.
      window: as of `EpochPlan`, within a block.
      pad_to: as of `EpochPlan`.

    Attributes:
      fingerprint: version and hash of everything the order depends on.
      report: statistics of kept, dropped and padded data.
      buckets: statistics of each bucket with batches.
      positions: positions of all batches of an epoch, including padding.

    Raises:
      DataError: no row is left.
    """

    def __init__(
        self,
        lengths: BlockLengths,
        scheme: BatchingScheme,
        *,
        seed: int = 0,
        source: str = "",
        window: int = 0,
        pad_to: FixedShapes | None = None,
    ) -> None:
        self.seed = seed
        self.scheme = scheme
        self._lengths = lengths
        self._pad_to = pad_to
        self._order: Any = {"seed": seed, "window": window, "pad_to": pad_to}
        settings = [source, seed, dataclasses.asdict(scheme), window, lengths.edges]
        digest = hashlib.sha256(json.dumps(settings).encode())
        self._reports: list[PlanReport] = []
        self._most: list[int] = []  # positions of the largest batch of each block
        buckets: dict[int, Bucket] = {}
        self.positions = 0
        for block in range(len(lengths.blocks)):
            table = self._table(block)
            for counted in (*table.groups.lengths.values(), table.groups.counts):
                digest.update(np.ascontiguousarray(counted, dtype=np.int64).tobytes())
            self._reports.append(table.report)
            self._most.append(int(table.costs[1].max(initial=0)))
            self.positions += int(table.costs[1].sum())
            for bucket in table.buckets:
                buckets[bucket.low] = bucket.joined(buckets.get(bucket.low))
        self.fingerprint = f"{ORDER_VERSION}-{digest.hexdigest()[:16]}"
        self.buckets = [buckets[low] for low in sorted(buckets)]
        report = PlanReport.sum(self._reports)
        check_kept(report.kept, report.examples, scheme, report.too_long, report.too_short)
        padding_fraction = 1.0 - report.tokens / self.positions
        self.report = dataclasses.replace(report, padding_fraction=padding_fraction)
        self._batches = np.asarray([each.batches for each in self._reports])
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "plan")
        self._places = functools.lru_cache(maxsize=4)(self._draw)
        self._orders = functools.lru_cache(maxsize=2)(
            lambda epoch, block: self._pool.submit(lambda: self._plan(block).order(epoch))
        )
        self._unshuffled = functools.lru_cache(maxsize=1)(
            lambda block: self._plan(block).in_order()
        )

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch; the same for every epoch."""
        return self.report.batches

    def _table(self, block: int) -> BatchTable:
        """Returns the batches of a block, counted without its rows."""
        shards = self._lengths.blocks[block]
        lengths, counts = self._lengths.counts(shards.start, shards.stop)
        outside = rows_outside(lengths, self.scheme)
        dropped = int(counts[outside[0]].sum()), int(counts[outside[1]].sum())
        kept = ~np.logical_or(*outside)
        groups = Groups.of({name: each[kept] for name, each in lengths.items()}, counts[kept])
        return BatchTable(groups, self.scheme, int(counts.sum()), dropped, pad_to=self._pad_to)

    def _plan(self, block: int) -> EpochPlan:
        """Returns the plan of a block, whose rows are counted from 0."""
        shards = self._lengths.blocks[block]
        plan = EpochPlan(
            self._lengths.rows(shards.start, shards.stop), self.scheme, part=block, **self._order
        )
        plan.lengths.clear()  # its groups are enough
        if plan.report != self._reports[block]:
            raise DataError(
                f"The index of the lengths counts other rows than the shards {shards.start} to "
                f"{shards.stop - 1} have. Generate the data again, with --overwrite."
            )
        return plan

    def _draw(self, epoch: int) -> tuple[_Numbers, _Numbers]:
        """Returns the blocks of an epoch, in its order, and the end of each in its batches.

        Blocks without batches are left out.
        """
        drawn = noise(len(self._batches), self.seed, epoch, _BLOCKS)
        order = np.argsort(drawn, kind="stable")
        order = order[self._batches[order] > 0]
        return order, np.cumsum(self._batches[order])

    def _locate(self, index: int) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Returns epoch and block of global batch `index`, those that follow, and its position."""
        epoch, position = divmod(index, self.batches_per_epoch)
        order, ends = self._places(epoch)
        place = int(np.searchsorted(ends, position, side="right"))
        block = int(order[place])
        position -= int(ends[place] - self._batches[block])
        if place + 1 < len(order):
            return (epoch, block), (epoch, int(order[place + 1])), position
        return (epoch, block), (epoch + 1, int(self._places(epoch + 1)[0][0])), position

    def batch(self, index: int) -> _Numbers:
        """Returns the rows of global batch `index`, counted from 0 over all epochs.

        The first batch of a block waits for its plan; then the next block is planned in a thread.
        """
        (epoch, block), follows, position = self._locate(index)
        order = self._orders(epoch, block)
        self._orders(*follows)
        rows: _Numbers = order.result()(position) + self._lengths.edges[block]
        return rows

    def shards_of(self, index: int) -> tuple[range, range]:
        """Returns the shards of global batch `index` and its block, and those of the next block."""
        (_, block), (_, following), _ = self._locate(index)
        return self._lengths.blocks[block], self._lengths.blocks[following]

    @property
    def largest_batch(self) -> _Numbers:
        """Returns the rows of the batch with the most positions."""
        block = max(self._places(0)[0].tolist(), key=self._most.__getitem__)
        rows: _Numbers = self._plan(block).largest_batch + self._lengths.edges[block]
        return rows

    @property
    def one_of_each_shape(self) -> Iterator[_Numbers]:
        """Yields the rows of a batch of each shape, those with the most positions first.

        A shape is taken from the block of it that is trained on first.
        """
        found: dict[tuple[int, ...], tuple[int, int, int]] = {}
        for block in self._places(0)[0].tolist():
            table = self._table(block)
            rows, widths = table.shapes
            shapes, first = np.unique(np.stack([rows, *widths.values()]), axis=1, return_index=True)
            for shape, batch in zip(shapes.T.tolist(), first.tolist(), strict=True):
                found.setdefault(tuple(shape), (int(table.costs[1][batch]), block, batch))
        for _, block, batch in sorted(found.values(), key=lambda each: -each[0]):
            yield self._unshuffled(block)[batch] + self._lengths.edges[block]
