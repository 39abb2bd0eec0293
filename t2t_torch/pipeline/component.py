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
from t2t_torch.pipeline.bucketing import NO_LIMIT, BatchingScheme
from t2t_torch.pipeline.collate import Batch, Collator
from t2t_torch.pipeline.examples import Examples
from t2t_torch.pipeline.fixed_shapes import FixedShapes
from t2t_torch.pipeline.lengths import measured
from t2t_torch.pipeline.packed import PackedCollator
from t2t_torch.pipeline.packing import Bins, check_packable, pack, spacing_of
from t2t_torch.pipeline.plan import EpochPlan, PlanReport, nothing_left

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.batching import Batching


@dataclasses.dataclass(frozen=True, eq=False)
class Component:
    """A training split, its order, and how its batches are read.

    Attributes:
      plan: which rows are in which batch; numbers of bins if examples are packed.
      collate: makes a batch of such rows.
      report: what is kept, dropped and padded; counts examples, packed or not.
    """

    plan: EpochPlan
    collate: Callable[[npt.NDArray[Any]], Batch]
    report: PlanReport

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape that those of an epoch have, large ones first."""
        return map(self.collate, self.plan.one_of_each_shape)

    @classmethod
    def of(cls, shards: Shards, features: Features, batching: Batching, *, seed: int) -> Component:
        """Plans a training split.

        Raises:
          DataError: no example is left.
          HParamsError: what hparams ask for does not fit the features.
        """
        examples = Examples.of(shards, features, batching)
        scheme = batching.training
        pad_to = None
        if batching.hparams.pad_batch and measured(features.all):  # else nothing is padded
            pad_to = _fixed_shapes(scheme, features)
        window = batching.hparams.batch_shuffle_size
        if not batching.hparams.pack_dataset:
            lengths, source = examples.lengths, examples.source
            plan = EpochPlan(
                lengths, scheme, seed=seed, source=source, window=window, pad_to=pad_to
            )
            return cls(plan, Collator(examples.reader, pad_to), plan.report)
        check_packable(features)
        bins, too_long, too_short = _pack(examples, batching, spacing_of(features))
        lengths = {name: bins.lengths(length) for name, length in examples.lengths.items()}
        source = (
            f"{examples.source} packed {hashlib.sha256(bins.members.tobytes()).hexdigest()[:16]}"
        )
        scheme = dataclasses.replace(scheme, min_length=0)
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


def _pack(examples: Examples, batching: Batching, spacing: int) -> tuple[Bins, int, int]:
    """Returns the bins of the examples that training keeps, and how many are too long and short.

    The bins are the same in every epoch; their order is not.
    """
    scheme, capacity = batching.training, batching.packed_length
    longest = functools.reduce(np.maximum, examples.lengths.values())
    too_long = longest > capacity
    too_short = longest < scheme.min_length
    kept = np.flatnonzero(~(too_long | too_short)).astype(np.int32)
    if not len(kept):
        bounds = dataclasses.replace(scheme, max_length=capacity)
        dropped = int(too_long.sum()), int(too_short.sum())
        raise DataError(f"nothing to pack: {nothing_left(bounds, len(longest), *dropped)}")
    alone = None if examples.alone is None else examples.alone[kept]
    lengths = {name: length[kept] for name, length in examples.lengths.items()}
    bins = pack(lengths, capacity, spacing=spacing, alone=alone)
    members = kept[bins.members]
    return Bins(members, bins.offsets, spacing), int(too_long.sum()), int(too_short.sum())
