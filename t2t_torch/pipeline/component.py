"""A data set as it is trained on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.pipeline.bagging import bagged
from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.examples import Examples
from t2t_torch.pipeline.fixed_shapes import FixedShapes
from t2t_torch.pipeline.lengths import measured
from t2t_torch.pipeline.packed import PackedCollator
from t2t_torch.pipeline.packing import Bins, check_packable, pack, spacing_of
from t2t_torch.pipeline.plan import EpochPlan, PlanReport, nothing_left
from t2t_torch.pipeline.streams import StreamPlan

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.batching import Batching


@dataclasses.dataclass(frozen=True, eq=False)
class Component:
    """A training split, its order, and how its batches are read.

    Attributes:
      plan: which rows are in which batch; numbers of bins if examples are packed, of batches if
        the text is read in streams.
      collate: makes a batch of such rows.
      report: what is kept, dropped and padded; counts examples, packed or not.
    """

    plan: EpochPlan | StreamPlan
    collate: Callable[[npt.NDArray[Any]], Batch]
    report: PlanReport

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape that those of an epoch have, large ones first."""
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
    ) -> Component:
        """Plans a training split.

        Args:
          shards: the split.
          features: of the problem.
          batching: how examples become batches.
          seed: of the order.
          batches_per_step: those of all processes; streams are shared out among them.

        Raises:
          DataError: no example is left.
          HParamsError: what hparams ask for does not fit the features.
        """
        if batching.hparams.stream_length:
            _check_streams(batching)
            streams = StreamPlan.of(
                shards, features, batching.hparams, seed=seed, batches_per_step=batches_per_step
            )
            return cls(streams, streams.collate, streams.report)
        examples = Examples.of(shards, features, batching)
        counts = _counts(examples, batching)
        pad_to = None
        if batching.hparams.pad_batch and measured(features.all):  # else nothing is padded
            pad_to = _fixed_shapes(batching.training, features)
        if not batching.hparams.pack_dataset:
            plan = EpochPlan(
                examples.lengths,
                batching.training,
                seed=seed,
                source=examples.source,
                window=batching.hparams.batch_shuffle_size,
                pad_to=pad_to,
                counts=counts,
            )
            return cls(plan, Collator(examples.reader, pad_to), plan.report)
        check_packable(features)
        packed = _pack(examples, batching, spacing_of(features), counts)
        return cls._of_bins(examples, batching, *packed, seed=seed, pad_to=pad_to)

    @classmethod
    def _of_bins(
        cls,
        examples: Examples,
        batching: Batching,
        bins: Bins,
        too_long: int,
        too_short: int,
        *,
        seed: int,
        pad_to: FixedShapes | None,
    ) -> Component:
        """Plans packed rows; `too_long` and `too_short` examples are in none."""
        window = batching.hparams.batch_shuffle_size
        lengths = {name: bins.lengths(length) for name, length in examples.lengths.items()}
        source = (
            f"{examples.source} packed {hashlib.sha256(bins.members.tobytes()).hexdigest()[:16]}"
        )
        scheme = dataclasses.replace(batching.training, min_length=0)
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
    """Raises HParamsError if rows are to be drawn that are read on as one text."""
    if batching.hparams.bagging_share:
        raise HParamsError(
            f"bagging_share={batching.hparams.bagging_share} leaves rows out, and stream_length "
            "reads each row on where the one before has ended. Set one of them to 0."
        )


def _counts(examples: Examples, batching: Batching) -> npt.NDArray[Any] | None:
    """Returns how often each example is in an epoch, as `bagging_share` asks."""
    share, seed = batching.hparams.bagging_share, batching.hparams.bagging_seed
    if seed and not share:
        raise HParamsError(
            f"bagging_seed={seed} is read by nothing: it needs bagging_share. Set bagging_share=1, "
            "or leave it out."
        )
    return bagged(len(next(iter(examples.lengths.values()))), share, seed)


def _fixed_shapes(scheme: BatchingScheme, features: Features) -> FixedShapes:
    """Returns the shapes of `pad_batch`.

    Raises:
      HParamsError: no boundary is known that rows could be padded to.
    """
    if scheme.max_length >= NO_LIMIT:
        raise HParamsError(
            "pad_batch pads to the boundary of a bucket, and where batch_size counts examples "
            "there is none without max_length. Give it: --hparams=max_length=256."
        )
    sequences = all(target.is_sequence for target in features.targets.values())
    return FixedShapes(scheme, fills_rows=sequences)


def _pack(
    examples: Examples, batching: Batching, spacing: int, counts: npt.NDArray[Any] | None
) -> tuple[Bins, int, int]:
    """Returns the bins of the examples that training keeps, and how many are too long and short.

    The bins are the same in every epoch; their order is not.
    """
    scheme, capacity = batching.training, batching.packed_length
    longest = functools.reduce(np.maximum, examples.lengths.values())
    too_long = longest > capacity
    too_short = longest < scheme.min_length
    kept = np.flatnonzero(~(too_long | too_short)).astype(np.int32)
    if counts is not None:
        kept = np.repeat(kept, counts[kept])
    if not len(kept):
        bounds = dataclasses.replace(scheme, max_length=capacity)
        dropped = int(too_long.sum()), int(too_short.sum())
        raise DataError(f"nothing to pack: {nothing_left(bounds, len(longest), *dropped)}")
    alone = None if examples.alone is None else examples.alone[kept]
    lengths = {name: length[kept] for name, length in examples.lengths.items()}
    bins = pack(lengths, capacity, spacing=spacing, alone=alone)
    members = kept[bins.members]
    return Bins(members, bins.offsets, spacing), int(too_long.sum()), int(too_short.sum())
