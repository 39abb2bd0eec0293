"""Whole words as ids, in a graph."""

from __future__ import annotations

from t2t_torch.export.characters import at_least_one, numbered
from t2t_torch.export.encoder_graph import EncoderGraph, WordIds
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, counted, turned
from t2t_torch.text.encoder import NUM_RESERVED, PAD
from t2t_torch.text.token import TokenEncoder


class WordTable(EncoderGraph):
    """A `TokenEncoder` in a graph.

    Args:
      graph: that the operators are added to.
      encoder: whose words these are.
      field: that is encoded, for the error when a word is not in a vocabulary without
        `replace_oov`.
    """

    def __init__(self, graph: Graph, encoder: TokenEncoder, field: str) -> None:
        self._graph = graph
        self._encoder = encoder
        words = enumerate(encoder.tokens[NUM_RESERVED:], NUM_RESERVED)
        # An empty line of a vocabulary's file is no word of any text; it fills up rows here.
        self._numbers = {**{word: number for number, word in words}, "": PAD}
        self._field = field

    def of_texts(self, field: FieldText) -> Rows:
        """Returns one id for each of what `str.split` cuts a text into."""
        rows = self._looked_up(field.lower_parts if self._encoder.lower_case else field.parts)
        return turned(self._graph, rows) if self._encoder.reverse else rows

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id for each word."""
        ids = self._looked_up(field.lower_words if self._encoder.lower_case else field.words)
        return WordIds(ids, counted(self._graph, ids.lengths))

    def _looked_up(self, words: str) -> Rows:
        graph, lengths = self._graph, count_of(self._graph, words)
        unknown = next(iter(self._encoder.unknown_ids), -1)
        ids = at_least_one(graph, numbered(graph, words, self._numbers, unknown), PAD)
        if unknown < 0:
            known = graph.add(
                "GreaterOrEqual", graph.add("ReduceMin", ids, keepdims=0), graph.constant(0)
            )
            ids = graph.require(known, f"{self._field}: a word is not in the vocabulary", ids)
        return Rows(ids, lengths)
