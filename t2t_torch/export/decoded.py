"""Ids as texts in a graph: what an encoder's `decode` does in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export.byte_graph import decode_bytes
from t2t_torch.export.characters import joined
from t2t_torch.export.graph import Graph
from t2t_torch.export.subtoken_text import unescaped_texts
from t2t_torch.export.subword_graph import decode_texts
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD, TextEncoder
from t2t_torch.text.integer import IntegerEncoder
from t2t_torch.text.subtoken import SubtokenEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.token import TokenEncoder

_KNOWN = (
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    SubtokenEncoder,
    SubwordEncoder,
    TokenEncoder,
)


def check_decodable(name: str, encoder: TextEncoder) -> None:
    """Checks that a graph can write texts of an encoder.

    Args:
      name: of the text.
      encoder: between ids and text.

    Raises:
      ExportError: it cannot.
    """
    known = isinstance(encoder, _KNOWN)
    if not known or getattr(encoder, "reverse", False):
        kind = type(encoder).__name__
        turned = "; from the last word to the first" if known else ""
        raise ExportError(
            f"{name!r} is a text of a {kind}{turned}, which a graph cannot write. What it can are "
            "texts of subwords, bytes, characters, integers and words. Serve this run with PyTorch."
        )


def decoded(graph: Graph, encoder: TextEncoder, ids: str) -> str:
    """Returns the text of each row of ids, up to its first `EOS`.

    Args:
      graph: that the operators are added to.
      encoder: one that `check_decodable` lets pass.
      ids: [B, T] int64.

    Returns:
      [B] string.
    """
    if isinstance(encoder, SubwordEncoder):
        return decode_texts(graph, encoder, ids)
    if isinstance(encoder, ByteEncoder):
        return decode_bytes(graph, ids, _kept(graph, ids))
    if isinstance(encoder, SubtokenEncoder):
        pieces = _named(graph, encoder.subtokens, ids, "", _kept(graph, ids))
        return unescaped_texts(graph, joined(graph, pieces))
    if isinstance(encoder, CharacterEncoder):
        unknown = encoder.decode([encoder.vocab_size])
        signs = ["", "", unknown, *encoder.characters]
        return joined(graph, _named(graph, signs, ids, unknown, _kept(graph, ids)))
    kept = _kept(graph, ids)
    if isinstance(encoder, IntegerEncoder):
        numbers = graph.add("Sub", ids, graph.constant(NUM_RESERVED))
        words = graph.add("Cast", numbers, to=TensorProto.STRING)
        words = graph.add("Where", kept, words, graph.constant([""]))
    else:
        assert isinstance(encoder, TokenEncoder)
        words = _named(graph, encoder.tokens, ids, "", kept)
    number = graph.add("CumSum", graph.integers(kept), graph.constant(1))
    follows = graph.add("And", kept, graph.add("Greater", number, graph.constant(1)))
    between = graph.add("Where", follows, graph.constant([" "]), graph.constant([""]))
    return joined(graph, graph.add("StringConcat", between, words))


def decoded_hypotheses(graph: Graph, encoder: TextEncoder, ids: str) -> str:
    """Returns the text of each of several rows of ids; a search may have found nothing.

    Args:
      graph: that the operators are added to.
      encoder: one that `check_decodable` lets pass.
      ids: [B, n, T] int64; T may be 0.

    Returns:
      [B, n] string.
    """
    shape = graph.add("Shape", ids, start=0, end=2)
    ids = graph.add("Pad", ids, graph.constant([0, 0, 0, 0, 0, 1]), graph.constant(PAD))
    width = graph.add("Shape", ids, start=2, end=3)
    flat = graph.add("Reshape", ids, graph.add("Concat", graph.constant([-1]), width, axis=0))
    return graph.add("Reshape", decoded(graph, encoder, flat), shape)


def _kept(graph: Graph, ids: str) -> str:
    """Returns which ids are of the text.  [B, T] bool."""
    end = graph.integers(graph.add("Equal", ids, graph.constant(EOS)))
    before = graph.add("Equal", graph.add("CumSum", end, graph.constant(1)), graph.constant(0))
    return graph.add("And", before, graph.add("Not", graph.add("Equal", ids, graph.constant(PAD))))


def _named(graph: Graph, names: Sequence[str], ids: str, other: str, kept: str) -> str:
    """Returns the name of each id that is kept, "" for the others.  [B, T] string."""
    keys = np.arange(len(names), dtype=np.int64)
    found = graph.add(
        "LabelEncoder",
        ids,
        domain="ai.onnx.ml",
        keys_int64s=keys.tolist(),
        values_strings=list(names),
        default_string=other,
    )
    return graph.add("Where", kept, found, graph.constant([""]))
