"""A problem's data on disk, as batches: of one data set, or of several that are mixed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.pipeline.batching import Batching
from t2t_torch.pipeline.component import Component
from t2t_torch.pipeline.loader import ChainedBatches, EvalBatches, MixedBatches, TrainBatches
from t2t_torch.pipeline.mixture import MixingSchedule

if TYPE_CHECKING:
    from t2t_torch.features import Feature, Features
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem


class ProblemData:
    """The data of a problem, or of all the problems of a mixture.

    Args:
      problem: what is learnt.
      features: of the problem.
      hparams: how examples become batches.
      data_dir: where t2t-datagen wrote the shards.

    Raises:
      DataError: the mixing schedule is malformed, or the problems of a mixture have other features
        or vocabularies.
    """

    def __init__(
        self, problem: Problem, features: Features, hparams: HParams, data_dir: Path
    ) -> None:
        self._problem = problem
        self._hparams = hparams
        self._data_dir = data_dir
        self._schedule = None
        self._parts = [(problem, features)]
        if problem.mixing_schedule is not None:
            parts = problem.components
            self._schedule = MixingSchedule.parse(problem.mixing_schedule, len(parts))
            # Their columns may differ, as those of X and X_rev do.
            self._parts = [(part, part.features(data_dir)) for part in parts]
            check_alike({part.full_name: its for part, its in self._parts})
            check_vocabularies(parts, data_dir)
        self._warned: set[Split] = set()

    def train(
        self, *, seed: int, start: int, rank: int, world_size: int
    ) -> TrainBatches | MixedBatches:
        """Returns training batches from global batch `start` on, for one process of several."""
        opened = [
            (self._shards(part, Split.TRAIN), features, Batching.of(part, self._hparams))
            for part, features in self._parts
        ]
        if self._schedule is None:
            return TrainBatches(
                *opened[0], seed=seed, start=start, rank=rank, world_size=world_size
            )
        components = [Component.of(*one, seed=seed) for one in opened]
        accumulate = self._hparams.optimizer_multistep_accumulate_steps or 1
        return MixedBatches(
            components,
            self._schedule,
            seed=seed,
            batches_per_step=accumulate * world_size,
            start=start,
            rank=rank,
            world_size=world_size,
        )

    def evaluate(self, split: Split, *, rank: int, world_size: int) -> ChainedBatches:
        """Returns each example of a split once, problem after problem; says once if some are
        cut.
        """
        passes = []
        for part, features in self._parts:
            shards, batching = self._shards(part, split), Batching.of(part, self._hparams)
            batches = EvalBatches(shards, features, batching, rank=rank, world_size=world_size)
            passes.append(batches)
            if batches.cut and rank == 0 and split not in self._warned:
                print(
                    f"WARNING: {batches.cut:,} of {len(shards):,} examples of {part.full_name}, "
                    f"split {split.value}, are longer than {batching.bound} tokens and are cut to "
                    "that. More is kept with a larger max_length.",
                    file=sys.stderr,
                )
        self._warned.add(split)
        return ChainedBatches(passes)

    def _shards(self, part: Problem, split: Split) -> Shards:
        return Shards.open(self._data_dir, part.dataset_name, split)


def check_alike(features: Mapping[str, Features]) -> None:
    """Checks that the problems of a mixture have the same features.

    Args:
      features: of each problem, by its name.

    Raises:
      DataError: one has others; both are told.
    """
    told = {name: _told(its) for name, its in features.items()}
    first = next(iter(told))
    for name, its in told.items():
        if its != told[first]:
            raise DataError(
                f"a mixture is of problems with the same features, but {first} has {told[first]} "
                f"and {name} has {its}."
            )


def check_vocabularies(problems: Sequence[Problem], data_dir: Path) -> None:
    """Checks that the problems of a mixture were encoded with the same vocabularies.

    Raises:
      DataError: one has other vocabularies, or has not been generated.
    """
    hashes = {
        part.full_name: sorted(Manifest.load(data_dir, part.dataset_name).vocab_files.values())
        for part in problems
    }
    first = next(iter(hashes))
    for name, its in hashes.items():
        if its != hashes[first]:
            raise DataError(
                f"the ids of {name} mean other things than those of {first}: their vocabulary "
                f"files in {data_dir} differ. Let one use the other's (its class attribute "
                f"use_vocab_from_other_problem), and generate it anew with t2t-datagen."
            )


def _told(features: Features) -> str:
    parts = {"inputs": features.inputs, "targets": features.targets, "notes": features.notes}
    return "; ".join(
        f"{role}: {', '.join(f'{name} ({_kind(its)})' for name, its in group.items())}"
        for role, group in parts.items()
        if group
    )


def _kind(feature: Feature) -> str:
    ids = f" of {feature.vocab_size} ids" if feature.vocab_size else ""
    return f"{type(feature).__name__}{ids}"
