"""Numbers between spaces as ids, in a graph."""

from __future__ import annotations

from onnx import TensorProto

from t2t_torch.export.characters import at_least_one
from t2t_torch.export.encoder_graph import EncoderGraph, WordIds
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, counted
from t2t_torch.text.encoder import NUM_RESERVED, PAD
from t2t_torch.text.integer import IntegerEncoder


class IntegerTable(EncoderGraph):
    """An `IntegerEncoder` in a graph.

    The one difference: digits are those of ASCII, eighteen at most, without Python's underscores.

    Args:
      graph: that the operators are added to.
      encoder: whose integers these are.
      field: that is encoded, for the error when a word is none of them.
    """

    def __init__(self, graph: Graph, encoder: IntegerEncoder, field: str) -> None:
        self._graph = graph
        self._size = encoder.vocab_size
        self._field = field

    def of_texts(self, field: FieldText) -> Rows:
        """Returns one id for each of what `str.split` cuts a text into."""
        return self._encoded(field.parts)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id for each word."""
        ids = self._encoded(field.words)
        return WordIds(ids, counted(self._graph, ids.lengths))

    def _encoded(self, words: str) -> Rows:
        graph, lengths = self._graph, count_of(self._graph, words)
        words = at_least_one(graph, words, "")
        blank = graph.add("Equal", words, graph.constant(""))
        words = graph.add("Where", blank, graph.constant("0"), words)
        written = graph.add("RegexFullMatch", words, pattern="[+-]?[0-9]{1,18}")
        words = self._required(written, words, "a word is no integer")
        ids = graph.add("Cast", words, to=TensorProto.INT64)
        ids = graph.add("Add", ids, graph.constant(NUM_RESERVED))
        least = graph.add("GreaterOrEqual", ids, graph.constant(NUM_RESERVED))
        within = graph.add("And", least, graph.add("Less", ids, graph.constant(self._size)))
        most = self._size - NUM_RESERVED - 1
        ids = self._required(within, ids, f"an integer is not from 0 to {most}")
        return Rows(graph.add("Where", blank, graph.constant(PAD), ids), lengths)

    def _required(self, each: str, values: str, otherwise: str) -> str:
        """Returns values as they are; the graph fails where not each of them is as it should."""
        graph = self._graph
        every = graph.add("ReduceMin", graph.integers(each), keepdims=0)
        every = graph.add("Equal", every, graph.constant(1))
        return graph.require(every, f"{self._field}: {otherwise}", values)
