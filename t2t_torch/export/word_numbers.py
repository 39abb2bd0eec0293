"""Which word of a text each of its ids is a part of, in a graph."""

from __future__ import annotations

import numpy as np

from t2t_torch.export.character_class import SPACE, re2
from t2t_torch.export.characters import tokens
from t2t_torch.export.decoded import decoded
from t2t_torch.export.field_text import count_of
from t2t_torch.export.graph import Graph
from t2t_torch.text.encoder import PAD, TextEncoder


def words_of(graph: Graph, texts: str) -> str:
    """Returns what `str.split` cuts texts into: [B] string to [B, W], filled up with ""."""
    return tokens(graph, texts, separators=[f"{re2(SPACE)}+"])


def word_numbers(graph: Graph, encoder: TextEncoder, ids: str, kept: str) -> str:
    """Returns the number of each id's word, from 0; -1 of ids that are not kept.

    It is how many words there are up to the id, less one: as `decode.word_alignment` has it.

    Args:
      graph: that the operators are added to.
      encoder: one that `check_decodable` lets pass.
      ids: [N, T] int64.
      kept: which of them are of the text, the first ones, [N, T] bool.

    Returns:
      [N, T] int64.
    """
    width = graph.add("Squeeze", graph.add("Shape", ids, start=1, end=2))
    places = graph.add("Range", graph.constant(0), width, graph.constant(1))
    body = graph.body("words")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    before = body.add("And", kept, body.add("LessOrEqual", places, number))
    part = body.add("Where", before, ids, body.constant(PAD))
    count = count_of(body, words_of(body, decoded(body, encoder, part)))
    body.output("more", body.constant(True), "bool", [])
    body.output("count", count, "int64", [None])
    counts = graph.add("Loop", width, graph.constant(True), body=body)  # [T, N]
    numbers = graph.add("Sub", graph.add("Transpose", counts), graph.constant(1))
    numbers = graph.add("Max", numbers, graph.constant(0))
    return graph.add("Where", kept, numbers, graph.constant(np.int64(-1)))
