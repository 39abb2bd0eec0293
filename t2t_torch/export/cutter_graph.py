"""A `WordCutter` in a graph."""

from __future__ import annotations

import re
import string

from t2t_torch.export.character_class import SPACE, re2
from t2t_torch.export.characters import (
    beside,
    changed_together,
    joined,
    numbered,
    replaced,
    spaced,
    tokens,
)
from t2t_torch.export.graph import Graph
from t2t_torch.export.lower_case import capitals, lower
from t2t_torch.text.word_cutter import WordCutter

_SMALL, _CAPITAL = 1, 2


def cut_words(graph: Graph, texts: str, cutter: WordCutter) -> str:
    """Returns the words of each text: what the cutter finds.

    Args:
      graph: that the operators are added to.
      texts: [B] string.
      cutter: what words are.

    Returns:
      [B, W] string, filled up with the empty one.

    Raises:
      ExportError: an expression of the cutter cannot stand in a graph.
    """
    if cutter.spaces:
        parts = tokens(graph, texts, separators=[re2(cutter.spaces)])
        texts = joined(graph, spaced(graph, parts))
    looked_at = re.escape(cutter.before_words)
    looked_at += "A-Z" if cutter.splits_glued else ""
    looked_at += capitals() if cutter.lower_case else ""
    if looked_at:
        parts = tokens(graph, texts, separators=[f"{re2(SPACE)}+"])
        parts = replaced(
            graph,
            parts,
            f"[^{looked_at}]*",
            lambda some: changed_together(
                graph, some, lambda letters: _letters(graph, letters, cutter)
            ),
        )
        texts = joined(graph, spaced(graph, parts))
    return tokens(graph, texts, tokenexp=re2(cutter.words))


def _letters(graph: Graph, letters: str, cutter: WordCutter) -> str:
    """Returns characters with the spaces that a cutter sees there, in its case.  [B, L] string."""
    if cutter.before_words:
        _, after = beside(graph, letters, "")
        sign = graph.add("Equal", letters, graph.constant(cutter.before_words))
        after = graph.add("Where", sign, after, graph.constant(""))
        is_space = graph.add("RegexFullMatch", after, pattern=re2(r"\w"))
        letters = graph.add("Where", is_space, graph.constant(" "), letters)
    glued = _glued(graph, letters) if cutter.splits_glued else ""
    if cutter.lower_case:
        letters = lower(graph, letters)
    if glued:
        space = graph.add("Where", glued, graph.constant(" "), graph.constant(""))
        letters = graph.add("StringConcat", space, letters)
    return letters


def _glued(graph: Graph, letters: str) -> str:
    """Returns which characters are a capital between two small letters, of ASCII.  [B, L] bool."""
    kinds = dict.fromkeys(string.ascii_lowercase, _SMALL)
    kinds.update(dict.fromkeys(string.ascii_uppercase, _CAPITAL))
    case = numbered(graph, letters, kinds, 0)
    small = graph.constant(_SMALL)
    around = [graph.add("Equal", one, small) for one in beside(graph, case, 0)]
    capital = graph.add("Equal", case, graph.constant(_CAPITAL))
    return graph.add("And", capital, graph.add("And", *around))
