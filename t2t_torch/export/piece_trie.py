"""A vocabulary of pieces as a tree, and lines of symbols cut with it in a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_torch.export.graph import Graph
from t2t_torch.export.line import places

_ROOT = 0
_NO = -1


class Cut(NamedTuple):
    """Where pieces begin in a line.

    Attributes:
      begins: [N] bool.
      ids: [N] int64, that of the longest piece that begins here; where none does it is -1.
    """

    begins: str
    ids: str


class PieceTrie:
    """Pieces, of which the longest that fits is taken, from the left: `subtoken_learner.cut`.

    Args:
      pieces: the symbols of each piece, none empty, and its id.
      num_symbols: how many symbols there are; they are 0, 1, 2 and so on.
    """

    def __init__(self, pieces: Mapping[tuple[int, ...], int], num_symbols: int) -> None:
        self._branches = num_symbols + 1
        self._edges: dict[int, int] = {}  # by node and symbol: the next node
        ids = [_NO]  # by node: of the piece that ends there
        for symbols, identity in pieces.items():
            node = _ROOT
            for symbol in symbols:
                edge = node * self._branches + symbol
                if edge not in self._edges:
                    self._edges[edge] = len(ids)
                    ids.append(_NO)
                node = self._edges[edge]
            ids[node] = identity
        self._ids = np.array(ids)

    def cut(self, graph: Graph, symbols: str, starts: str) -> Cut:
        """Returns where the pieces of tokens begin.

        Args:
          graph: that the operators are added to.
          symbols: [N] int64, of tokens one after another; of each the last symbol is one that
            no piece has but at its end.
          starts: [N] bool, where tokens begin.
        """
        ids, lengths = self._longest(graph, symbols)
        return Cut(_reached(graph, starts, graph.add("Add", places(graph, symbols), lengths)), ids)

    def _longest(self, graph: Graph, symbols: str) -> tuple[str, str]:
        """Returns the id and the length of the longest piece at each place; 0 long if none.

        All places go down the tree at once, a symbol a turn, until the last has to stop.
        """
        # Behind the line stands a symbol that no piece has: nothing goes on there.
        beyond = graph.constant(self._branches - 1)
        longer = graph.add("Pad", symbols, graph.constant([0, 1]), beyond)
        node_ids = graph.constant(self._ids)
        zeros = graph.add("Mul", symbols, graph.constant(0))
        body = graph.body("down")
        turn = body.input("turn", "int64", [])
        body.input("more", "bool", [])
        node = body.input("node", "int64", [None])
        place = body.input("place", "int64", [None])
        ids = body.input("ids", "int64", [None])
        lengths = body.input("lengths", "int64", [None])
        symbol = body.add("Gather", longer, body.add("Add", place, turn))
        edge = body.add("Add", body.add("Mul", node, body.constant(self._branches)), symbol)
        node = body.add(
            "LabelEncoder",
            edge,
            domain="ai.onnx.ml",
            keys_int64s=list(self._edges),
            values_int64s=list(self._edges.values()),
            default_int64=_NO,
        )
        goes_on = body.add("Greater", node, body.constant(_ROOT))
        node = body.add("Compress", node, goes_on, axis=0)
        place = body.add("Compress", place, goes_on, axis=0)
        found = body.add("Gather", node_ids, node)
        is_piece = body.add("GreaterOrEqual", found, body.constant(0))
        at = body.add("Compress", place, is_piece, axis=0)
        found = body.add("Compress", found, is_piece, axis=0)
        length = body.add("Expand", body.add("Add", turn, body.constant(1)), body.add("Shape", at))
        body.output("more", _any(body, goes_on), "bool", [])
        body.output("node", node, "int64", [None])
        body.output("place", place, "int64", [None])
        body.output("ids", body.add("ScatterElements", ids, at, found), "int64", [None])
        body.output("lengths", body.add("ScatterElements", lengths, at, length), "int64", [None])
        begin = (zeros, places(graph, symbols), graph.add("Sub", zeros, graph.constant(1)), zeros)
        _, _, ids, lengths = graph.several(4, "Loop", "", graph.constant(True), *begin, body=body)
        return ids, lengths


def _reached(graph: Graph, starts: str, following: str) -> str:
    """Returns which places are met on the way from any start.

    In each turn steps are twice as wide as before; all is found when a turn finds nothing.

    Args:
      graph: that the operators are added to.
      starts: [N] bool.
      following: [N] int64, where the way goes on from each place; N is the end.

    Returns:
      [N] bool.
    """
    beyond = graph.add("Shape", starts)
    body = graph.body("wider")
    body.input("turn", "int64", [])
    body.input("more", "bool", [])
    met = body.input("met", "int64", [None])
    step = body.input("step", "int64", [None])
    ahead = body.add("Compress", step, body.add("Equal", met, body.constant(1)), axis=0)
    ones = body.add("Expand", body.constant(1), body.add("Shape", ahead))
    now = body.add("ScatterElements", met, ahead, ones)
    more = body.add("Greater", now, met)
    body.output("more", _any(body, more), "bool", [])
    body.output("met", now, "int64", [None])
    body.output("step", body.add("Gather", step, step), "int64", [None])
    met = graph.add("Pad", graph.integers(starts), graph.constant([0, 1]), graph.constant(0))
    step = graph.add("Concat", following, beyond, axis=0)
    met, _ = graph.several(2, "Loop", "", graph.constant(True), met, step, body=body)
    met = graph.add("Slice", met, graph.constant([0]), beyond)
    return graph.add("Equal", met, graph.constant(1))


def _any(graph: Graph, flags: str) -> str:
    """Returns whether one is true: [N] bool to [] bool."""
    count = graph.add("ReduceSum", graph.integers(flags), keepdims=0)
    return graph.add("Greater", count, graph.constant(0))
