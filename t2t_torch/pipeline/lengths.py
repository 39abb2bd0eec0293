"""How long examples are, and to what length they are cut."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.hparam import DataHParams


def measured(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the sequences with a length of their own.

    What is aligned to the words of another feature is never longer than that, and goes with it.
    """
    return {
        name: feature
        for name, feature in features.items()
        if feature.is_sequence and feature.aligned_to not in features
    }


def paddings(features: Mapping[str, Feature]) -> dict[str, int]:
    """Returns what fills up each text-like sequence: those by which padding is counted.

    They are the measured ones with one number for each position.
    """
    return {
        name: feature.padding
        for name, feature in measured(features).items()
        if feature.shape == (None,)
    }


def numbers_per_position(feature: Feature) -> int:
    """Returns how many numbers each position of a sequence has."""
    return math.prod(size or 1 for size in feature.shape[1:])


@dataclasses.dataclass(frozen=True)
class Limits:
    """To how many positions examples are cut.

    Attributes:
      by_feature: for each measured feature that is cut, the positions that are kept at most.
    """

    by_feature: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, features: Features, hparams: DataHParams, *, bound: int = 0) -> Limits:
        """Returns the limits that hparams set.

        Args:
          features: of the problem.
          hparams: `max_input_seq_length`, `max_target_seq_length`.
          bound: positions of any feature, besides; 0 for no bound.

        Raises:
          HParamsError: targets are to be cut that belong to the words of an input.
        """
        by_role = {
            "inputs": hparams.max_input_seq_length,
            "targets": hparams.max_target_seq_length,
            "notes": 0,
        }
        if by_role["targets"]:
            _refuse_aligned(features)
        limits = {}
        for name in measured(features.all):
            limit = by_role[features.role(name)]
            limits[name] = min(limit or bound, bound or limit)
        return cls({name: limit for name, limit in limits.items() if limit})

    def lengths(
        self, shards: Shards, features: Mapping[str, Feature], columns: Mapping[str, str]
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns for each measured feature the positions of every row, as cut.

        Data without sequences has rows of one position, under the name of its first feature.

        Args:
          shards: the rows.
          features: by name.
          columns: for each feature, the stored column that it is read from.
        """
        stored = shards.lengths
        found = measured(features) or dict([next(iter(features.items()))])
        lengths = {name: feature.lengths(stored[columns[name]]) for name, feature in found.items()}
        return {name: self.cut(name, length) for name, length in lengths.items()}

    def cut(self, name: str, lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns what is left of lengths of a measured feature.  [N]."""
        limit = self.by_feature.get(name, 0)
        return np.minimum(lengths, limit) if limit else lengths


def _refuse_aligned(features: Features) -> None:
    for name, feature in features.targets.items():
        if feature.is_sequence and feature.aligned_to in features.all:
            raise HParamsError(
                f"max_target_seq_length cuts texts, but the target {name!r} has an entry for each "
                f"word of {feature.aligned_to!r} and is cut with them. Use max_input_seq_length."
            )
