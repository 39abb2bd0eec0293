"""Rows of numbers of different lengths in a graph, filled up with 0."""

from __future__ import annotations

from typing import NamedTuple

from t2t_torch.export.characters import at_least_one, first
from t2t_torch.export.graph import Graph
from t2t_torch.text.encoder import EOS


class Rows(NamedTuple):
    """Rows of numbers.

    Attributes:
      values: [B, S] int64, 0 from each row's end on; S may be 0.
      lengths: [B] int64.
    """

    values: str
    lengths: str


def of_flat(graph: Graph, flat: str, lengths: str) -> Rows:
    """Returns rows of their numbers one after another.

    Args:
      graph: that the operators are added to.
      flat: [N] int64, the first row's, the second's and so on.
      lengths: [B] int64, with the sum N.
    """
    mask = _mask(graph, lengths, longest(graph, lengths))
    zeros = graph.integers(graph.add("And", mask, graph.constant(False)))
    places = graph.add("Transpose", graph.add("NonZero", mask))  # [N, 2], row by row
    return Rows(graph.add("ScatterND", zeros, places, flat), lengths)


def counted(graph: Graph, lengths: str) -> Rows:
    """Returns 0, 1, 2 and so on for each row."""
    width = longest(graph, lengths)
    values = graph.add("Mul", _numbers(graph, width), graph.integers(_mask(graph, lengths, width)))
    return Rows(values, lengths)


def with_end(graph: Graph, rows: Rows) -> Rows:
    """Returns rows with `EOS` behind each."""
    values = graph.add("Pad", rows.values, graph.constant([0, 0, 0, 1]), graph.constant(0))
    numbers = _numbers(graph, graph.add("Shape", values, start=1, end=2))
    end = graph.add("Equal", numbers, _upright(graph, rows.lengths))
    values = graph.add("Where", end, graph.constant(EOS), values)
    return Rows(values, graph.add("Add", rows.lengths, graph.constant(1)))


def turned(graph: Graph, rows: Rows) -> Rows:
    """Returns each row from its last number to its first."""
    values = graph.add("ReverseSequence", rows.values, rows.lengths, batch_axis=0, time_axis=1)
    return Rows(values, rows.lengths)


def cut(graph: Graph, rows: Rows, lengths: str) -> Rows:
    """Returns the beginnings of rows, as wide as the longest of them but at least 1.

    Args:
      graph: that the operators are added to.
      rows: what is cut.
      lengths: [B] int64, what is kept of each at most.
    """
    lengths = graph.add("Min", rows.lengths, lengths)
    width = longest(graph, lengths)
    kept = graph.integers(_mask(graph, lengths, width))
    values = first(graph, at_least_one(graph, rows.values, 0), width)
    return Rows(graph.add("Mul", values, kept), lengths)


def longest(graph: Graph, lengths: str) -> str:
    """Returns the largest of lengths, but at least 1.  [1] int64."""
    return graph.add("Max", graph.add("ReduceMax", lengths, keepdims=0), graph.constant([1]))


def _numbers(graph: Graph, width: str) -> str:
    """Returns [width] int64 from 0 on."""
    end = graph.add("Squeeze", width)
    return graph.add("Range", graph.constant(0), end, graph.constant(1))


def _mask(graph: Graph, lengths: str, width: str) -> str:
    """Returns which places are in each row.  [B, width] bool."""
    return graph.add("Less", _numbers(graph, width), _upright(graph, lengths))


def _upright(graph: Graph, lengths: str) -> str:
    return graph.add("Unsqueeze", lengths, graph.constant([1]))  # [B, 1]
