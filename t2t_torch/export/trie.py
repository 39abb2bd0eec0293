"""Segmentation by a trie of subwords in an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_torch.export.graph import LINE, Graph, Proxy, any_true, combine, loop, places, take
from t2t_torch.export.strings import NONE, look_up

_ROOT = 0


class Cut(NamedTuple):
    """Segmentation of a sequence of symbols.

    Attributes:
      begins: mask of the starts of pieces, [N] bool.
      ids: id of the longest piece that begins at each position, -1 for none, [N] int64.
    """

    begins: Proxy
    ids: Proxy


class PieceTrie:
    """Trie for greedy longest-match segmentation from the left: `subtoken_learner.cut`.

    Args:
      pieces: nonempty symbols of each piece, and its id.
      num_symbols: number of symbols; they are 0, 1, 2 etc.
    """

    def __init__(self, pieces: Mapping[tuple[int, ...], int], num_symbols: int) -> None:
        self._branches = num_symbols + 1
        self._edges: dict[int, int] = {}  # next node by node and symbol
        ids = [NONE]  # id of the piece that ends at each node
        for symbols, identity in pieces.items():
            node = _ROOT
            for symbol in symbols:
                edge = node * self._branches + symbol
                if edge not in self._edges:
                    self._edges[edge] = len(ids)
                    ids.append(NONE)
                node = self._edges[edge]
            ids[node] = identity
        self._ids = np.array(ids)

    def cut(self, symbols: Proxy, starts: Proxy) -> Cut:
        """Returns the segmentation of tokens.

        Args:
          symbols: symbols of the concatenated tokens, [N] int64; pieces have the last symbol of a
            token only at their end.
          starts: mask of the starts of tokens, [N] bool.
        """
        ids, lengths = self._longest(symbols)
        return Cut(_reached(starts, places(symbols) + lengths), ids)

    def _longest(self, symbols: Proxy) -> tuple[Proxy, Proxy]:
        """Returns the id and length of the longest piece at each position; length 0 for none.

        All positions descend the trie in parallel, one symbol per iteration, until all have ended.
        """
        # Appends a symbol that no piece has, which ends every match.
        longer = symbols.Pad([0, 1], self._branches - 1)

        def descend(
            body: Graph, turn: Proxy, node: Proxy, place: Proxy, ids: Proxy, lengths: Proxy
        ) -> tuple[Proxy, ...]:
            node = look_up(node * self._branches + longer[place + turn], self._edges, NONE)
            goes_on = node > _ROOT
            node, place = (one.Compress(goes_on, axis=0) for one in (node, place))
            piece_ids = take(self._ids, node)
            is_piece = piece_ids >= 0
            at, piece_ids = (one.Compress(is_piece, axis=0) for one in (place, piece_ids))
            ids = ids.ScatterElements(at, piece_ids)
            lengths = lengths.ScatterElements(at, (turn + 1).Expand(at.Shape()))
            return any_true(goes_on), node, place, ids, lengths

        zeros = symbols * 0
        begin = (zeros, places(symbols), zeros - 1, zeros)
        _, _, ids, lengths = loop(symbols.graph, descend, *begin, kinds=[LINE] * 4)
        return ids, lengths


def _reached(starts: Proxy, following: Proxy) -> Proxy:
    """Returns a mask of the positions reachable from any start.

    The step width doubles in each iteration, until an iteration reaches no new position.

    Args:
      starts: [N] bool.
      following: next position of each, N for the end, [N] int64.

    Returns:
      [N] bool.
    """

    def widen(body: Graph, turn: Proxy, met: Proxy, step: Proxy) -> tuple[Proxy, ...]:
        ahead = step.Compress(met == 1, axis=0)
        now = met.ScatterElements(ahead, combine("Expand", 1, ahead.Shape()))
        return any_true(now > met), now, step[step]

    met, beyond = starts.integers().Pad([0, 1], 0), starts.Shape()
    step = following.Concat(beyond, axis=0)
    met, _ = loop(starts.graph, widen, met, step, kinds=[LINE] * 2)
    return met[:beyond] == 1
