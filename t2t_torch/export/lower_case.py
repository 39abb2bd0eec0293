"""`str.lower` in a graph: the same for every text."""

from __future__ import annotations

import functools

from t2t_torch.export.character_class import characters, ranges
from t2t_torch.export.characters import changed_together, numbered, replaced
from t2t_torch.export.graph import Graph

# A capital sigma has two small ones: the second ends a word.  Unicode 3.13, Final_Sigma.
_SIGMA, _SMALL, _FINAL = "Σ", "σ", "ς"
_OTHER, _CASED, _IGNORED = 0, 1, 2


def lower_words(graph: Graph, words: str) -> str:
    """Returns words in lower case: strings of any shape, none with a line end."""
    return replaced(graph, words, f"[^{capitals()}]*", lambda some: _lower_some(graph, some))


def _lower_some(graph: Graph, words: str) -> str:
    return changed_together(graph, words, lambda letters: lower(graph, letters))


def capitals() -> str:
    """Returns the characters that lower case changes, as RE2 writes them between brackets."""
    return ranges(_is_capital)


def _is_capital(character: str) -> bool:
    return character.lower() != character


def lower(graph: Graph, letters: str) -> str:
    """Returns the characters of texts in lower case; one may become several.

    Args:
      graph: that the operators are added to.
      letters: [B, L] string, the characters of each text, filled up with the empty one.

    Returns:
      [B, L] string.
    """
    small = _small()
    found = graph.add(
        "LabelEncoder",
        letters,
        domain="ai.onnx.ml",
        keys_strings=list(small),
        values_strings=list(small.values()),
        default_string="",
    )
    as_it_is = graph.add("Equal", found, graph.constant(""))
    lowered = graph.add("Where", as_it_is, letters, found)
    return graph.add("Where", _is_final(graph, letters), graph.constant(_FINAL), lowered)


def _is_final(graph: Graph, letters: str) -> str:
    """Returns whether each character is a capital sigma that ends a word.  [B, L] bool.

    It does where the next character before it that is not to be ignored has case, and the next
    after it has none.
    """
    kinds = numbered(graph, letters, _kinds(), _OTHER)
    # One that has no case stands before and after each text.
    kinds = graph.add("Pad", kinds, graph.constant([0, 1, 0, 1]), graph.constant(_OTHER))
    shape = graph.add("Shape", kinds)
    flat = graph.add("Reshape", kinds, graph.constant([-1]))
    counts = graph.add("Not", graph.add("Equal", flat, graph.constant(_IGNORED)))
    counted = graph.add("Compress", flat, counts, axis=0)  # [K], at most [B * (L + 2)]
    counted = graph.add("Pad", counted, graph.constant([0, 1]), graph.constant(_OTHER))
    place = graph.add("CumSum", graph.add("Cast", counts, to=7), graph.constant(0))  # from 1
    before = graph.add("Gather", counted, graph.add("Sub", place, graph.constant(2)))
    after = graph.add("Gather", counted, place)
    ends = graph.add(
        "And",
        graph.add("Equal", before, graph.constant(_CASED)),
        graph.add("Not", graph.add("Equal", after, graph.constant(_CASED))),
    )
    ends = graph.add("Reshape", ends, shape)
    axis = graph.constant([1])
    ends = graph.add("Slice", ends, graph.constant([1]), graph.constant([-1]), axis)
    return graph.add("And", ends, graph.add("Equal", letters, graph.constant(_SIGMA)))


@functools.cache
def _small() -> dict[str, str]:
    """Returns the characters that lower case changes, and what it makes of them."""
    return {one: one.lower() for one in characters() if one.lower() != one}


@functools.cache
def _kinds() -> dict[str, int]:
    """Returns which characters have case, and which are ignored where a word's end is looked for.

    What becomes of a sigma behind each of them tells it.
    """
    kinds = {}
    for one in characters():
        if f"A{one}{_SIGMA}".lower()[-1] == _FINAL:
            kinds[one] = _CASED if f"{one}{_SIGMA}".lower()[-1] == _FINAL else _IGNORED
    return kinds
