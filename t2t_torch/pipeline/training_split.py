"""Training splits: the rows of each batch, with bagging, packing and mixtures of problems."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import HParamsError
from t2t_torch.features.feature import select_measured, select_sequences
from t2t_torch.hparam import EVERY_ROW
from t2t_torch.pipeline.block_plan import BlockLengths, BlockPlan
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.packing import Bins, PackedCollator, check_packable, pack, spacing_of
from t2t_torch.pipeline.plan import (
    NO_LIMIT,
    EpochPlan,
    FixedShapes,
    PlanReport,
    noise,
    rows_within,
    uniform,
)
from t2t_torch.pipeline.reader import Examples
from t2t_torch.pipeline.streams import StreamPlan
from t2t_torch.problem_types.mixture import MixingSchedule
from t2t_torch.reports.column_statistics import StoredColumn, combined, row_hashes

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.plan import Batching


_STREAM = 6  # of the noise; the plan of an epoch has 0 to 3, a mixture 4 and 5


def bagged(rows: int, share: float, seed: int) -> npt.NDArray[Any] | None:
    """Returns the count of each training row per epoch, a function of its index and the seed.

    Independent Poisson draws (Oza and Russell 2001, "Online Bagging and Boosting"): a share of 1 is
    a bootstrap sample that omits 37 % of the rows.  The counts do not depend on the number of
    processes or on other rows.

    Bagging: Breiman 1996, "Bagging Predictors", for a member of an ensemble.

    Args:
      rows: number of rows of the split.
      share: mean count; 0 disables bagging.
      seed: seed of the draw.

    Returns:
      [rows] integers >= 0; None if bagging is disabled.
    """
    if not share:
        return None
    random = uniform(noise(rows, seed, 0, _STREAM))  # [rows]
    counts = np.zeros(rows, np.int64)
    term = below = math.exp(-share)
    count = 0
    while term > 0.0 and below < 1.0:
        counts += random >= below
        count += 1
        term *= share / count
        below += term
    return counts


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingSplit:
    """A training split with its order and its collator.

    Attributes:
      plan: rows of each batch; indices of bins if examples are packed, of batches if the text is
        read in streams.
      collate: makes a batch of such rows in an epoch, 0 by default.
      report: statistics of kept, dropped and padded data; counts examples, packed or not.
      prefetch: begins to fetch shards, in the order in which a plan in blocks needs them.
    """

    plan: EpochPlan | BlockPlan | StreamPlan
    collate: Callable[..., Batch]
    report: PlanReport
    prefetch: Callable[..., None] = lambda *parts: None

    def work(self, number: int) -> tuple[npt.NDArray[Any], int]:
        """Returns the arguments of `collate` for a batch: its rows and the epoch.

        Args:
          number: index of the batch, from 0 over all epochs.
        """
        if isinstance(self.plan, BlockPlan):
            self.prefetch(*self.plan.shards_of(number))
        return self.plan.batch(number), number // self.plan.batches_per_epoch

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape in an epoch, largest first."""
        return map(self.collate, self.plan.one_of_each_shape)

    @classmethod
    def of(
        cls,
        shards: Shards,
        features: Features,
        batching: Batching,
        *,
        seed: int,
        batches_per_step: int = 1,
    ) -> TrainingSplit:
        """Plans a training split.

        Args:
          shards: shards of the split.
          features: features of the problem.
          batching: batching settings.
          seed: seed of the order.
          batches_per_step: batches of all processes in a step; streams are divided among them.

        Raises:
          DataError: no example is left.
          HParamsError: hparams do not fit the features.
        """
        if batching.hparams.stream_length:
            _check_streams(batching)
            streams = StreamPlan.of(
                shards, features, batching.hparams, seed=seed, batches_per_step=batches_per_step
            )
            return cls(streams, streams.collate, streams.report)
        blocks = BlockLengths.of(shards, features, batching)
        examples = Examples.of(shards, features, batching, seed=seed, measure=blocks is None)
        pad_to = None
        if batching.hparams.pad_batch and select_measured(features.all):  # else nothing is padded
            if batching.training.max_length >= NO_LIMIT:
                raise HParamsError(
                    "pad_batch pads to the boundary of a bucket, and where batch_size counts "
                    "examples there is none without max_length. Give it: "
                    "--hparams=max_length=256."
                )
            targets = features.targets
            fills_rows = len(select_sequences(targets)) == len(targets)
            pad_to = FixedShapes(batching.training, fills_rows=fills_rows)
        window = batching.hparams.batch_shuffle_size
        order: Any = {
            "seed": seed, "source": examples.source, "window": window, "pad_to": pad_to
        }  # fmt: skip
        plan: EpochPlan | BlockPlan
        if blocks is not None:
            plan = BlockPlan(blocks, batching.training, **order)
            return cls(plan, Collator(examples.reader, pad_to), plan.report, shards.prefetch)
        counts = _counts(examples, batching, rows_of_fold(shards, features, batching.hparams.fold))
        if not batching.hparams.pack_dataset:
            plan = EpochPlan(examples.lengths, batching.training, counts=counts, **order)
            return cls(plan, Collator(examples.reader, pad_to), plan.report)
        check_packable(features)
        return cls._packed(
            examples, batching, counts, spacing=spacing_of(features), seed=seed, pad_to=pad_to
        )

    @classmethod
    def _packed(
        cls,
        examples: Examples,
        batching: Batching,
        counts: npt.NDArray[Any] | None,
        *,
        spacing: int,
        seed: int,
        pad_to: FixedShapes | None,
    ) -> TrainingSplit:
        """Makes the split of packed rows; its bins are the same in every epoch, not their order."""
        scheme = dataclasses.replace(batching.training, max_length=batching.packed_length)
        rows, too_long, too_short = rows_within(examples.lengths, scheme, counts)
        alone = None if examples.alone is None else examples.alone[rows]
        kept = {name: length[rows] for name, length in examples.lengths.items()}
        packed = pack(kept, scheme.max_length, spacing=spacing, alone=alone)
        bins = Bins(rows[packed.members], packed.offsets, spacing)
        lengths = {name: bins.lengths(length) for name, length in examples.lengths.items()}
        source = (
            f"{examples.source} packed {hashlib.sha256(bins.members.tobytes()).hexdigest()[:16]}"
        )
        scheme = dataclasses.replace(batching.training, min_length=0)
        window = batching.hparams.batch_shuffle_size
        plan = EpochPlan(lengths, scheme, seed=seed, source=source, window=window, pad_to=pad_to)
        tokens = sum(int(length[bins.members].sum()) for length in examples.lengths.values())
        report = dataclasses.replace(
            plan.report,
            tokens=tokens,
            padding_fraction=1.0 - tokens / plan.positions,
            examples=len(bins.members) + too_long + too_short,
            kept=len(bins.members),
            too_long=too_long,
            too_short=too_short,
            packed_rows=len(bins),
        )
        return cls(plan, PackedCollator(examples.reader, bins, pad_to), report)


def _check_streams(batching: Batching) -> None:
    """Raises HParamsError if rows are sampled although they are read as one text."""
    for name in ("bagging_share", "fold"):
        if (value := getattr(batching.hparams, name)) not in (0, "", EVERY_ROW):
            raise HParamsError(
                f"{name}={value} leaves rows out, and stream_length reads each row on where the "
                "one before has ended. Leave one of them out."
            )
    if batching.preprocess is not None:
        raise HParamsError(
            "the problem's preprocess_example changes one example at a time, and stream_length "
            "reads all of them as one text. Set stream_length=0, or change the text in "
            "generate_samples."
        )


def _counts(
    examples: Examples, batching: Batching, fold: npt.NDArray[np.bool_] | None
) -> npt.NDArray[Any] | None:
    """Returns the count of each example per epoch, as set by `bagging_share` and `fold`."""
    share, seed = batching.hparams.bagging_share, batching.hparams.bagging_seed
    if seed and not share:
        raise HParamsError(
            f"bagging_seed={seed} is read by nothing: it needs bagging_share. Set bagging_share=1, "
            "or leave it out."
        )
    counts = bagged(len(next(iter(examples.lengths.values()))), share, seed)
    if fold is None:
        return counts
    if batching.split_length:
        raise HParamsError("fold is of rows, and split_to_length makes several examples of one.")
    kept = (~fold).astype(np.int64)
    return kept if counts is None else counts * kept


MIXTURE_VERSION = 2
"""Stands in the fingerprint.  2: each problem is shuffled with a seed of its own."""

_MIXTURE_STREAM, _SEEDS = 4, 5  # of the noise; the plan of an epoch has 0 to 3
_BLOCK = 4096  # batches whose problems are drawn together


def component_seed(seed: int, index: int) -> int:
    """Returns the seed of the order of one problem of a mixture.

    With the same seed, problems with rows of the same lengths (X and X_rev) would have the same
    rows at the same time.

    Args:
      seed: seed of the run.
      index: index of the problem in the mixture.
    """
    return int(noise(1, seed, index, _SEEDS)[0])


class MixedPlan:
    """The problem of every batch, and the index of the batch in that problem.

    Like the order within a problem it is a function of the batch index: batch k is drawn with its
    own noise, so a run can resume at any step with any number of processes.

    Args:
      schedule: proportions of the problems by step.
      seed: seed of the run.
      batches_per_step: batches of all processes in an optimizer step.
    """

    def __init__(self, schedule: MixingSchedule, *, seed: int, batches_per_step: int) -> None:
        self.schedule = schedule
        self.seed = seed
        self.batches_per_step = batches_per_step
        problems = len(schedule.shares[0])
        self._before = [np.zeros(problems, np.int64)]  # batches of each problem before each block
        self._block = functools.lru_cache(maxsize=4)(self._draw)

    def locate(self, index: int) -> tuple[int, int]:
        """Returns the problem of global batch `index`, and the number of its earlier batches.

        With round_robin, batch k is of problem k modulo the number of problems; else it is drawn.
        The first call at a late position draws all blocks up to it, in about 50 ns per batch.
        """
        if self.schedule.kind == "round_robin":
            turn, problem = divmod(index, len(self.schedule.shares[0]))
            return problem, turn
        block, place = divmod(index, _BLOCK)
        while len(self._before) <= block:
            drawn = self._draw(len(self._before) - 1)
            counts = np.bincount(drawn, minlength=len(self._before[0]))
            self._before.append(self._before[-1] + counts)
        drawn = self._block(block)
        problem = int(drawn[place])
        return problem, int(self._before[block][problem] + (drawn[:place] == problem).sum())

    def _draw(self, block: int) -> npt.NDArray[np.int64]:
        """Returns the problems of a block of batches, [_BLOCK]."""
        numbers = block * _BLOCK + np.arange(_BLOCK)
        ends = np.cumsum(self.schedule.at(numbers // self.batches_per_step), axis=1)
        ends /= ends[:, -1:]
        random = uniform(noise(_BLOCK, self.seed, block, _MIXTURE_STREAM))
        return (random[:, None] >= ends[:, :-1]).sum(axis=1)  # type: ignore[no-any-return]


_FOLD = re.compile(r"([1-9]\d*)/([1-9]\d*)")


def rows_of_fold(shards: Shards, features: Features, fold: str) -> npt.NDArray[np.bool_] | None:
    """Returns which training rows are in a fold, [rows]; None if there is no fold.

    A row belongs to a fold by a hash of its inputs: equal inputs are in one fold, and a row keeps
    its fold when others are added.

    Args:
      shards: training split.
      features: features of the problem.
      fold: number of the fold, from 1, and number of folds, as "2/5"; or "", or `EVERY_ROW`.

    Raises:
      HParamsError: `fold` is not of this form.
    """
    if fold in ("", EVERY_ROW):
        return None
    match = _FOLD.fullmatch(fold)
    number, folds = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= folds or folds < 2:
        raise HParamsError(
            f"fold={fold!r}: expected the number of a fold and of all, as 2/5, or all."
        )
    names = [features.columns[name] for name in features.inputs]
    hashes = [row_hashes(StoredColumn(shards.column(name))) for name in names]
    # Mixed again: sums of few values are no uniform numbers.
    mixed = functools.reduce(combined, hashes, np.zeros(len(shards), np.uint64))
    return np.asarray(mixed % np.uint64(folds) == number - 1)
