"""What attention knows of how far apart two positions are.

Shaw et al. 2018, "Self-Attention with Relative Position Representations", arXiv:1803.02155.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """Returns how far each key stands behind each query, negative before it.

    The last query and the last key stand at one place.

    Args:
      queries: T.
      keys: S.
      device: of the result.

    Returns:
      [T, S] int64.
    """
    places = torch.arange(keys, device=device)
    return places - torch.arange(keys - queries, keys, device=device)[:, None]


class RelativePositions(nn.Module):
    """A vector for each distance, added to the keys, and another one added to the values.

    All heads share them; those of a layer are its own.  No tensor of [T, S, D] is made: the
    product of a query and a key's vector is one of 2M + 1 products, and what the values add is a
    sum of 2M + 1 vectors, each weighted by all the attention to its distance.

    Args:
      size: D, the width of a head.
      furthest: M; what is further away counts as so far.
    """

    def __init__(self, size: int, furthest: int) -> None:
        super().__init__()
        self.furthest = furthest
        self.keys = nn.Linear(size, 2 * furthest + 1, bias=False)  # row M + d: of distance d
        self.values = nn.Linear(2 * furthest + 1, size, bias=False)  # column M + d: of distance d

    def scores(self, q: Tensor, apart: Tensor) -> Tensor:
        """Returns what the distances add to the scores.

        Args:
          q: queries, scaled, [..., T, D].
          apart: distances, [T, S] or what broadcasts to [..., T, S].

        Returns:
          [..., T, S].
        """
        index = self._index(apart).expand(*q.shape[:-1], apart.size(-1))
        found: Tensor = self.keys(q)
        return found.gather(-1, index)

    def mixed(self, weights: Tensor, apart: Tensor) -> Tensor:
        """Returns what the distances add to the mix of values.

        Args:
          weights: of attention, [..., T, S].
          apart: as in `scores`.

        Returns:
          [..., T, D].
        """
        index = self._index(apart).expand_as(weights)
        by_distance = weights.new_zeros(*weights.shape[:-1], 2 * self.furthest + 1)
        found: Tensor = self.values(by_distance.scatter_add(-1, index, weights))
        return found

    def _index(self, apart: Tensor) -> Tensor:
        return apart.clamp(-self.furthest, self.furthest) + self.furthest
