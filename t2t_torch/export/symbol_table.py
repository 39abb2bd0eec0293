"""Single characters as ids, in a graph."""

from __future__ import annotations

from t2t_torch.export.characters import characters_of, is_first, joined, numbered, spaced
from t2t_torch.export.encoder_graph import EncoderGraph, Spelling, WordIds
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, of_flat
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.encoder import PAD


class SymbolTable(EncoderGraph):
    """A `CharacterEncoder` in a graph.

    Args:
      graph: that the operators are added to.
      encoder: whose characters these are.
    """

    def __init__(self, graph: Graph, encoder: CharacterEncoder) -> None:
        self._graph = graph
        (self._unknown,) = encoder.unknown_ids
        known = enumerate(encoder.characters, self._unknown + 1)
        self._numbers = {**{character: number for number, character in known}, "": PAD}

    def ids_of(self, letters: str) -> str:
        """Returns the id of each character, `PAD` for the empty string: string to int64."""
        return numbered(self._graph, letters, self._numbers, self._unknown)

    def of_texts(self, field: FieldText) -> Rows:
        """Returns one id for each character of a text."""
        return Rows(self.ids_of(field.letters), count_of(self._graph, field.letters))

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id for each character of the words and of the spaces between them."""
        graph = self._graph
        letters = characters_of(graph, joined(graph, spaced(graph, field.words)))
        is_letter = graph.add("Not", graph.add("Equal", letters, graph.constant("")))
        begins = graph.add("And", is_letter, is_first(graph, letters))
        begins = graph.add("Or", begins, graph.add("Equal", letters, graph.constant(" ")))
        starts = graph.add("Gather", graph.add("NonZero", begins), graph.constant(1))
        ids = Rows(self.ids_of(letters), count_of(graph, letters))
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def spelled(self, field: FieldText) -> Spelling:
        """Returns the characters of each text."""
        graph, letters = self._graph, field.letters
        between = numbered(graph, letters, dict.fromkeys(["", *" \t\r\n"], 1), 0)
        between = graph.add("Equal", between, graph.constant(1))
        return Spelling(self.ids_of(letters), between)
