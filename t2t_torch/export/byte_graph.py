"""Bytes as ids in a graph, and ids as text."""

from __future__ import annotations

from t2t_torch.export.characters import is_first
from t2t_torch.export.encoder_graph import EncoderGraph, Spelling, WordIds
from t2t_torch.export.field_text import FieldText
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, of_flat
from t2t_torch.export.utf8 import NONE, texts_of, utf8
from t2t_torch.text.encoder import NUM_RESERVED, PAD

_SPACE, *_OTHER_SPACES = (ord(space) + NUM_RESERVED for space in " \t\r\n")


class ByteGraph(EncoderGraph):
    """A `ByteEncoder` in a graph.

    Args:
      graph: that the operators are added to.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of_texts(self, field: FieldText) -> Rows:
        """Returns one id for each byte of a text."""
        graph, letters = self._graph, field.letters
        octets = utf8(graph, graph.add("Reshape", letters, graph.constant([-1])))
        octets = graph.add("Reshape", octets, graph.constant([-1]))
        there = graph.add("GreaterOrEqual", octets, graph.constant(0))
        ids = graph.add("Compress", octets, there, axis=0)
        ids = graph.add("Add", ids, graph.constant(NUM_RESERVED))
        count = graph.add("Shape", letters, start=0, end=1)
        by_text = graph.add("Concat", count, graph.constant([-1]), axis=0)
        there = graph.add("Reshape", graph.integers(there), by_text)
        lengths = graph.add("ReduceSum", there, graph.constant([1]), keepdims=0)
        return of_flat(graph, ids, lengths)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id for each byte of the words and of the spaces between them."""
        graph = self._graph
        ids = self.of_texts(FieldText(graph, words=field.words))
        begins = graph.add("Greater", ids.values, graph.constant(PAD))
        begins = graph.add("And", begins, is_first(graph, ids.values))
        space = graph.add("Equal", ids.values, graph.constant(_SPACE))
        begins = graph.add("NonZero", graph.add("Or", begins, space))
        starts = graph.add("Gather", begins, graph.constant(1))
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def spelled(self, field: FieldText) -> Spelling:
        """Returns the bytes of each text."""
        graph, ids = self._graph, self.of_texts(field).values
        between = graph.add("Equal", ids, graph.constant(PAD))
        for space in (_SPACE, *_OTHER_SPACES):
            is_space = graph.add("Equal", ids, graph.constant(space))
            between = graph.add("Or", between, is_space)
        return Spelling(ids, between)


def decode_bytes(graph: Graph, ids: str, kept: str) -> str:
    """Returns the text of each row of ids: what `ByteEncoder.decode` makes of those kept.

    Args:
      graph: that the operators are added to.
      ids: [B, T] int64.
      kept: [B, T] bool, which are of the text.

    Returns:
      [B] string.
    """
    octets = graph.add("Sub", ids, graph.constant(NUM_RESERVED))
    above = graph.add("GreaterOrEqual", octets, graph.constant(0))
    known = graph.add("And", above, graph.add("Less", octets, graph.constant(256)))
    known = graph.add("And", known, kept)
    return texts_of(graph, graph.add("Where", known, octets, graph.constant(NONE)))
