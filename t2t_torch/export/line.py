"""Numbers in a line in a graph: what stands beside each, and where the nearest of a kind is."""

from __future__ import annotations

from t2t_torch.export.graph import Graph


def shifted(graph: Graph, line: str, by: int, padding: int) -> str:
    """Returns for each place what stands `by` places on, or back if it is negative.

    Args:
      graph: that the operators are added to.
      line: [N] int64.
      by: how far; not 0.
      padding: what stands beyond the ends.
    """
    pads = graph.constant([max(-by, 0), max(by, 0)])
    longer = graph.add("Pad", line, pads, graph.constant(padding))
    start, end = max(by, 0), min(by, 0) or _END
    return graph.add("Slice", longer, graph.constant([start]), graph.constant([end]))


def places(graph: Graph, line: str) -> str:
    """Returns 0, 1, 2 and so on: as many as a line, [N], is long.  [N] int64."""
    count = graph.add("Squeeze", graph.add("Shape", line))
    return graph.add("Range", graph.constant(0), count, graph.constant(1))


def latest(graph: Graph, flags: str) -> str:
    """Returns for each place the nearest that is true, itself or one before it, or -1.

    Args:
      graph: that the operators are added to.
      flags: [N] bool.
    """
    found = graph.add("Concat", graph.constant([-1]), _true_places(graph, flags), axis=0)
    return graph.add("Gather", found, _count(graph, flags))


def following(graph: Graph, flags: str) -> str:
    """Returns for each place the nearest one after it that is true, or N.

    Args:
      graph: that the operators are added to.
      flags: [N] bool.
    """
    beyond = graph.add("Shape", flags)
    found = graph.add("Concat", _true_places(graph, flags), beyond, axis=0)
    return graph.add("Gather", found, _count(graph, flags))


def before_each(graph: Graph, counts: str) -> str:
    """Returns the sum of what stands before each place, and behind the last that of all.

    Args:
      graph: that the operators are added to.
      counts: [N] int64.

    Returns:
      [N + 1] int64.
    """
    longer = graph.add("Pad", counts, graph.constant([1, 0]), graph.constant(0))
    return graph.add("CumSum", longer, graph.constant(0))


_END = 2**63 - 1


def _true_places(graph: Graph, flags: str) -> str:
    return graph.add("Squeeze", graph.add("NonZero", flags), graph.constant([0]))


def _count(graph: Graph, flags: str) -> str:
    """Returns how many places up to each are true.  [N] int64."""
    return graph.add("CumSum", graph.integers(flags), graph.constant(0))
