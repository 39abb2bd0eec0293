"""Subwords as ids in a graph, by onnxruntime_extensions, and ids as text."""

from __future__ import annotations

import numpy as np

from t2t_torch.export.characters import (
    at_least_one,
    beside,
    characters_of,
    joined,
    replaced,
    spaced,
)
from t2t_torch.export.encoder_graph import EncoderGraph, WordIds
from t2t_torch.export.field_text import FieldText
from t2t_torch.export.graph import EXTENSIONS, Graph
from t2t_torch.export.rows import Rows, of_flat
from t2t_torch.text.encoder import EOS, NUM_RESERVED
from t2t_torch.text.subword import ESCAPES, SubwordEncoder


class SubwordGraph(EncoderGraph):
    """A `SubwordEncoder` in a graph.

    The one difference: onnxruntime_extensions end a text at a NUL, so the graph fails on it.

    Args:
      graph: that the operators are added to.
      encoder: whose subwords these are.
      field: that is encoded, for the error when a text holds NUL.
    """

    def __init__(self, graph: Graph, encoder: SubwordEncoder, field: str) -> None:
        self._graph = graph
        self._encoder = encoder
        self._field = field

    def of_texts(self, field: FieldText) -> Rows:
        """Returns the ids of each text."""
        ids, lengths = self._encoded(self._escaped(field).texts)
        return of_flat(self._graph, ids, lengths)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words; each but the first takes the space before it."""
        graph = self._graph
        words = at_least_one(graph, self._escaped(field).words, "")
        blank = graph.add("Equal", words, graph.constant(""))
        shape = graph.add("Shape", words)
        ids, counts = self._encoded(
            graph.add("Reshape", spaced(graph, words), graph.constant([-1]))
        )
        counts = graph.add("Reshape", counts, shape)
        starts = graph.add("CumSum", counts, graph.constant(1), exclusive=1)
        starts = graph.add("Where", blank, graph.constant(0), starts)
        lengths = graph.add("ReduceSum", counts, graph.constant([1]), keepdims=0)
        return WordIds(of_flat(graph, ids, lengths), Rows(starts, field.word_counts))

    def _escaped(self, field: FieldText) -> FieldText:
        graph, texts = self._graph, field.texts
        sound = graph.integers(graph.add("RegexFullMatch", texts, pattern=r"[^\x{0}]*"))
        sound = graph.add("Equal", graph.add("ReduceMin", sound, keepdims=0), graph.constant(1))
        texts = graph.require(sound, f"{self._field}: a text holds the character NUL", texts)
        unchanged = f"[^{''.join(ESCAPES)}]*"
        return FieldText(graph, replaced(graph, texts, unchanged, self._escape))

    def _escape(self, texts: str) -> str:
        """Returns texts as they are written to sentencepiece.  [B] string."""
        graph = self._graph
        letters = characters_of(graph, texts)
        found = graph.add(
            "LabelEncoder",
            letters,
            domain="ai.onnx.ml",
            keys_strings=list(ESCAPES),
            values_strings=list(ESCAPES.values()),
            default_string="",
        )
        as_it_is = graph.add("Equal", found, graph.constant(""))
        return joined(graph, graph.add("Where", as_it_is, letters, found))

    def _encoded(self, texts: str) -> tuple[str, str]:
        """Returns the ids of escaped texts one after another, [N], and how many each has, [T]."""
        graph = self._graph
        no = graph.constant([False])
        ids, ends = graph.several(
            2,
            "SentencepieceTokenizer",
            texts,
            graph.constant([0]),  # the best one, not one of several at random
            graph.constant([0.0]),
            no,  # nothing before it,
            no,  # nor after it,
            no,  # not reversed,
            no,  # and with the ids of the model itself
            domain=EXTENSIONS,
            model=self._encoder.model,
        )
        starts = graph.add("Slice", ends, graph.constant([0]), graph.constant([-1]))
        after = graph.add("Slice", ends, graph.constant([1]), graph.add("Shape", ends))
        return graph.integers(ids), graph.add("Sub", after, starts)


def decode_texts(graph: Graph, encoder: SubwordEncoder, ids: str) -> str:
    """Returns the text of each row of ids, up to its first `EOS`: `SubwordEncoder.decode`.

    A text ends at the id of the byte NUL, where there is one, too.

    Args:
      graph: that the operators are added to.
      encoder: between ids and text.
      ids: [B, S] int64.

    Returns:
      [B] string.
    """
    end = graph.integers(graph.add("Equal", ids, graph.constant(EOS)))
    before = graph.add("Equal", graph.add("CumSum", end, graph.constant(1)), graph.constant(0))
    known = graph.add(  # sentencepiece's unknown, the id after the reserved ones, is no text
        "And",
        graph.add("Greater", ids, graph.constant(NUM_RESERVED)),
        graph.add("Less", ids, graph.constant(encoder.vocab_size)),
    )
    kept = graph.add("And", before, known)
    body = graph.body("decode")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    texts = body.input("texts", "string", [None])
    row = body.add("Compress", body.add("Gather", ids, number), body.add("Gather", kept, number))
    text = body.add("SentencepieceDecoder", row, domain=EXTENSIONS, model=encoder.model)
    body.output("more", body.constant(True), "bool", [])
    body.output("texts", body.add("Concat", texts, text, axis=0), "string", [None])
    count = graph.add("Squeeze", graph.add("Shape", ids, start=0, end=1))
    none = graph.constant(np.array([], object))
    texts = graph.add("Loop", count, graph.constant(True), none, body=body)
    return joined(graph, _unescaped(graph, characters_of(graph, texts)))


def _unescaped(graph: Graph, letters: str) -> str:
    """Returns characters without escapes: of the two of an escape one is left.  [B, L] string."""
    before, after = beside(graph, letters, "")
    whole = letters
    for character, escaped in ESCAPES.items():
        mark, digit = escaped[0], escaped[1]
        is_mark = graph.add("Equal", letters, graph.constant(mark))
        is_mark = graph.add("And", is_mark, graph.add("Equal", after, graph.constant(digit)))
        is_digit = graph.add("Equal", letters, graph.constant(digit))
        is_digit = graph.add("And", is_digit, graph.add("Equal", before, graph.constant(mark)))
        whole = graph.add("Where", is_mark, graph.constant(""), whole)
        whole = graph.add("Where", is_digit, graph.constant(character), whole)
    return whole
