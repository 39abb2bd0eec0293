"""A split's examples as they are learnt: cut, or cut in pieces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from t2t_torch.pipeline.lengths import Limits
from t2t_torch.pipeline.pieces import Pieces, check_splittable
from t2t_torch.pipeline.reader import RowReader

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.pipeline.batching import Batching


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Examples, numbered from 0: rows, or the pieces of them that `split_to_length` makes.

    Attributes:
      lengths: for each measured feature the positions of every example, [N].
      reader: of examples, by number.
      source: what they are, for the fingerprint of their order.
      alone: which are whole pieces of a row that has several, [N]; None without pieces.
      cut: how many are longer than `bound` and are cut to it.
    """

    lengths: dict[str, npt.NDArray[Any]]
    reader: RowReader
    source: str
    alone: npt.NDArray[np.bool_] | None = None
    cut: int = 0

    @classmethod
    def of(
        cls, shards: Shards, features: Features, batching: Batching, *, bound: int = 0
    ) -> Examples:
        """Returns the examples of a split.

        Args:
          shards: the split.
          features: of the problem.
          batching: `max_input_seq_length`, `max_target_seq_length`, `split_to_length`.
          bound: positions to which each is cut besides; 0 for no bound.

        Raises:
          HParamsError: what hparams ask for does not fit the features.
        """
        given = Limits.of(features, batching.hparams)
        limits = Limits.of(features, batching.hparams, bound=bound)
        stored = given.lengths(shards, features.all, features.columns)
        if batching.split_length:
            text = check_splittable(features)
            pieces = Pieces.of(stored[text], batching.split_length)
            reader = RowReader(shards, features.all, features.columns, pieces=pieces)
            source = f"{shards.fingerprint} split {batching.split_length}"
            return cls({text: pieces.lengths}, reader, source, pieces.whole)
        lengths = {name: limits.cut(name, length) for name, length in stored.items()}
        longer = [stored[name] > length for name, length in lengths.items()]
        reader = RowReader(shards, features.all, features.columns, limits)
        cut = int(np.logical_or.reduce(longer).sum()) if bound else 0
        return cls(lengths, reader, shards.fingerprint, cut=cut)
