"""A field of texts in a graph: what it is cut into, each made once."""

from __future__ import annotations

import functools

from t2t_torch.export.character_class import LINE_SPACE, SPACE, re2
from t2t_torch.export.characters import at_least_one, characters_of, joined, spaced, tokens
from t2t_torch.export.graph import Graph
from t2t_torch.export.lower_case import lower_words


class FieldText:
    """The texts of a field.

    Args:
      graph: that the operators are added to.
      texts: [B] string; left out if `words` are given.
      words: [B, W] string, none with a space of any kind in it, filled up with the empty one.
    """

    def __init__(self, graph: Graph, texts: str = "", words: str = "") -> None:
        self._graph = graph
        self._texts = texts
        self._words = words

    @functools.cached_property
    def texts(self) -> str:
        """The texts themselves: [B] string."""
        return self._texts or joined(self._graph, spaced(self._graph, self._words))

    @functools.cached_property
    def letters(self) -> str:
        """The characters of each text: [B, L] string, filled up with the empty one; L > 0."""
        return at_least_one(self._graph, characters_of(self._graph, self.texts), "")

    @functools.cached_property
    def parts(self) -> str:
        """What `str.split` cuts each text into: [B, W] string, filled up with the empty one."""
        return self._words or tokens(self._graph, self.texts, separators=[f"{re2(SPACE)}+"])

    @functools.cached_property
    def words(self) -> str:
        """The words of each text, as `features.text.words_of` finds them: [B, W] string, filled
        up with the empty one.
        """
        return self._words or tokens(self._graph, self.texts, separators=[f"{LINE_SPACE}+"])

    @functools.cached_property
    def lower_parts(self) -> str:
        """The same as `parts`, in lower case."""
        return lower_words(self._graph, self.parts)

    @functools.cached_property
    def lower_words(self) -> str:
        """The same as `words`, in lower case."""
        return lower_words(self._graph, self.words)

    @functools.cached_property
    def word_counts(self) -> str:
        """How many words each text has: [B] int64."""
        return count_of(self._graph, self.words)


def count_of(graph: Graph, strings: str) -> str:
    """Returns how many strings of each row are not empty: [B, W] to [B] int64."""
    there = graph.add("Not", graph.add("Equal", strings, graph.constant("")))
    return graph.add("ReduceSum", graph.integers(there), graph.constant([1]), keepdims=0)
