"""Vocabularies of other libraries in an ONNX graph: texts as ids, and ids as text."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import EXTENSIONS, Graph
from t2t_torch.export.strings import (
    EncoderGraph,
    FieldText,
    Rows,
    at_least_one,
    count_of,
    joined,
    numbered,
    of_flat,
)
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD
from t2t_torch.text.pieces import BytePairEncoding, HuggingFacePieces, PieceEncoder, SentencePieces

_META_SPACE = "\u2581"


def why_not_in_graph(encoder: PieceEncoder) -> str:
    """Returns the reason why a graph cannot hold an encoder; "" if it can."""
    if isinstance(encoder.pieces, BytePairEncoding):
        return "its subwords are BPE codes"
    if isinstance(encoder.pieces, HuggingFacePieces):
        return "its subwords are a tokenizer of Hugging Face"
    if not isinstance(encoder.pieces, SentencePieces):
        return ""
    processor, numbers = encoder.pieces.processor, encoder.pieces.numbers
    if any(processor.is_byte(number) for number in numbers.values()):
        return "its sentencepiece model falls back to bytes"
    return ""


class PieceGraph(EncoderGraph):
    """A `PieceEncoder` in a graph.

    A character that the sentencepiece model does not know is the unknown token, even if the
    dictionary has it; and a text ends at NUL.

    Args:
      graph: graph to which operators are added.
      encoder: the encoder, of words or of a sentencepiece model.
      name: name of the text, for messages.

    Raises:
      ExportError: its subwords cannot be in a graph.
    """

    def __init__(self, graph: Graph, encoder: PieceEncoder, name: str) -> None:
        if reason := why_not_in_graph(encoder):
            raise ExportError(
                f"{name!r}: a graph cannot read this text: {reason}. Serve the run with PyTorch:  "
                "t2t-server --output_dir=RUN"
            )
        self._graph = graph
        self._encoder = encoder
        self._name = name
        silent = {*encoder.silent, *range(NUM_RESERVED)}
        tokens = reversed(list(enumerate(encoder.tokens)))
        self._ids = {token: number for number, token in tokens if number not in silent}

    def of_texts(self, field: FieldText) -> Rows:
        """Returns the ids of the pieces of each text."""
        graph, pieces = self._graph, self._encoder.pieces
        unknown = PAD if self._encoder.unknown is None else self._encoder.unknown
        if not isinstance(pieces, SentencePieces):
            parts = field.parts
            ids = numbered(graph, parts, {**self._ids, "": PAD}, unknown)
            return Rows(at_least_one(graph, ids, PAD), count_of(graph, parts))
        theirs, lengths = sentence_pieces(graph, field.texts, pieces.model)
        table = np.full(len(pieces.numbers), unknown, np.int64)
        for piece, number in pieces.numbers.items():
            table[number] = self._ids.get(piece, unknown)
        return of_flat(graph, graph.add("Gather", graph.constant(table), theirs), lengths)

    def of_words(self, field: FieldText) -> NoReturn:
        """Raises ExportError: no imported model has a text of words."""
        raise ExportError(f"{self._name!r}: a graph cannot split this text into words.")


def sentence_pieces(graph: Graph, texts: str, model: bytes) -> tuple[str, str]:
    """Returns the concatenated ids of texts, [N], and the number per text, [B].

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      model: sentencepiece model, whose ids they are.
    """
    no = graph.constant([False])
    ids, ends = graph.several(
        2,
        "SentencepieceTokenizer",
        texts,
        [0],  # the best segmentation, no sampling
        [0.0],
        no,  # no start symbol,
        no,  # no end symbol,
        no,  # not reversed,
        no,  # and the ids of the model itself
        domain=EXTENSIONS,
        model=model,
    )
    starts = graph.add("Slice", ends, [0], [-1])
    after = graph.add("Slice", ends, [1], graph.add("Shape", ends))
    return graph.integers(ids), graph.add("Sub", after, starts)


def decoded_pieces(graph: Graph, encoder: PieceEncoder, ids: str) -> str:
    """Returns the text of each row of ids up to its first `EOS`: `PieceEncoder.decode`.

    Args:
      graph: graph to which operators are added.
      encoder: an encoder without reasons of `why_not_in_graph`.
      ids: [B, T] int64.

    Returns:
      [B] string.
    """
    end = graph.integers(graph.add("Equal", ids, EOS))
    before = graph.add("Equal", graph.add("CumSum", end, 1), 0)
    has_text = np.ones(encoder.vocab_size, bool)
    has_text[[PAD, EOS, *encoder.silent]] = False
    mask = graph.add("And", before, graph.add("Gather", graph.constant(has_text), ids))
    if not isinstance(encoder.pieces, SentencePieces):
        words = _looked_up(graph, list(encoder.tokens), ids, mask)
        number = graph.add("CumSum", graph.integers(mask), 1)
        follows = graph.add("And", mask, graph.add("Greater", number, 1))
        between = graph.add("Where", follows, [" "], [""])
        return joined(graph, graph.add("StringConcat", between, words))
    pieces = encoder.pieces
    texts = [token.replace(_META_SPACE, " ") for token in encoder.tokens]
    unknown = pieces.processor.unk_id()
    if unknown >= 0:
        name = pieces.processor.id_to_piece(unknown)
        surface = pieces.processor.decode_pieces([name])
        texts = [surface if text == name else text for text in texts]
    # Spaces at the beginning are not written: all of them, or the first one alone.
    drops_all = encoder.strip or pieces.join([_META_SPACE, f"{_META_SPACE}a"]) == "a"
    is_blank = np.array([not token.strip(_META_SPACE) for token in encoder.tokens])
    ink = graph.add(
        "And", mask, graph.add("Not", graph.add("Gather", graph.constant(is_blank), ids))
    )
    counted = ink if drops_all else mask
    number = graph.add("CumSum", graph.integers(counted), 1)
    lead = graph.add("LessOrEqual", number, 1)  # up to the first one
    shorter = [text.lstrip(" ") if drops_all else text.removeprefix(" ") for text in texts]
    first = _looked_up(graph, shorter, ids, mask)
    words = graph.add("Where", lead, first, _looked_up(graph, texts, ids, mask))
    if encoder.strip:
        after = graph.add("CumSum", graph.integers(ink), 1, reverse=1)
        words = graph.add("Where", graph.add("Greater", after, 0), words, [""])
    return joined(graph, words)


def _looked_up(graph: Graph, texts: list[str], ids: str, mask: str) -> str:
    """Returns the text of each kept id, "" for the others.  [B, T] string."""
    found = graph.add(
        "LabelEncoder",
        ids,
        domain="ai.onnx.ml",
        keys_int64s=list(range(len(texts))),
        values_strings=texts,
        default_string="",
    )
    return graph.add("Where", mask, found, [""])
