"""Vocabularies of other libraries in a graph: the ids and texts of `PieceEncoder`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from t2t_torch.export.graph import Graph
from t2t_torch.export.pieces import PieceGraph, decode_pieces
from t2t_torch.export.strings import FieldText
from t2t_torch.text.pieces import END_OF_WORD, BytePairEncoding, HuggingFacePieces, PieceEncoder

TEXTS = [
    "",
    "  ",
    "aaaa aaa aaaaaaa",
    "b@@ @@ @ a",
    "\N{SNOWMAN}a x\u2581y",
    "\u00a0b\u3000c",
    "abcabc",
]


def session(graph: Graph) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph.model().SerializeToString())


def check(encoder: PieceEncoder, texts: list[str]) -> None:
    """Checks ids and decoded texts of a batch, and the ids of each text alone."""
    graph = Graph()
    rows = PieceGraph(encoder, graph, "x").of_texts(FieldText(graph.input("t", "string", [None])))
    graph.output("ids", rows.values, "int64", [None, None])
    graph.output("lengths", rows.lengths, "int64", [None])
    encode = session(graph)
    ids, lengths = encode.run(None, {"t": np.array(texts, object)})
    expected = [encoder.encode(text) for text in texts]
    assert [list(row[:n]) for row, n in zip(ids, lengths, strict=True)] == expected
    for text, row in zip(texts, expected, strict=True):
        one, (length,) = encode.run(None, {"t": np.array([text], object)})
        assert list(one[0][:length]) == row, text
    if not isinstance(encoder.pieces, BytePairEncoding):
        return
    graph = Graph()
    decoded = decode_pieces(encoder, graph, graph.input("i", "int64", [None, None]))
    graph.output("texts", decoded, "string", [None])
    (found,) = session(graph).run(None, {"i": ids})
    assert list(found) == [encoder.decode(row) for row in expected]


def test_codes_without_merges_split_words_into_characters():
    tokens = ["<pad>", "</s>", "<unk>", "a", "b", "a@@", "b@@", "@", "@@@"]
    check(PieceEncoder(tokens, 2, BytePairEncoding(""), strip=True), TEXTS)


@pytest.mark.parametrize("version", ["#version: 0.2\n", "#version: 0.1\n", ""])
@pytest.mark.parametrize("seed", range(4))
def test_merges_of_bpe_are_those_of_the_encoder(version, seed):
    """Random merges, in orders that no training gives: results of a merge may rank before it."""
    draw = random.Random(seed)
    symbols = [*"abc", *(f"{letter}{END_OF_WORD}" for letter in "abc")]
    merges = []
    for _ in range(draw.randint(3, 25)):
        first = draw.choice([one for one in symbols if not one.endswith(END_OF_WORD)])
        second = draw.choice(symbols)
        merges.append(f"{first} {second}")
        symbols.append(first + second)
    pieces = [
        one.removesuffix(END_OF_WORD) if one.endswith(END_OF_WORD) else f"{one}@@"
        for one in symbols
        if draw.random() < 0.9  # the others are unknown
    ]
    words = ["".join(draw.choices("abcx", [3, 3, 3, 1], k=draw.randint(1, 12))) for _ in range(60)]
    texts = [" ".join(words[i : i + 4]) for i in range(0, 60, 4)]
    tokens = ["<pad>", "</s>", "<unk>", *dict.fromkeys(pieces)]
    codes = BytePairEncoding(version + "\n".join(merges))
    check(PieceEncoder(tokens, 2, codes, strip=True), TEXTS + texts)


BERT = Path(__file__).parent.parent / "golden" / "peers" / "huggingface"


@pytest.mark.parametrize("kind", ["bert", "distilbert"])  # uncased, cased
def test_word_pieces_are_those_of_bert(kind):
    pieces = HuggingFacePieces((BERT / kind / "tokenizer.json").read_text("utf-8"))
    vocabulary = pieces.config["model"]["vocab"]
    tokens = ["[PAD]", "[SEP]", *(one for one in vocabulary if one not in ("[PAD]", "[SEP]"))]
    unknown, first = tokens.index("[UNK]"), tokens.index("[CLS]")
    encoder = PieceEncoder(tokens, unknown, pieces, silent=[first])
    texts = json.loads((BERT / kind / "expected.json").read_text("utf-8"))["items"]
    lines = [item["text"] for item in texts if isinstance(item["text"], str)]
    odd = [
        "The D\u00f3g, don't!  \u4e2d\u6587 x",
        "\u00c9cole e\u0301cole \u0130\u03a3 \u03a3",
        "a\u200bb\tc\x00d \ufffd",
        "the\u2014dog\u00a0sees ##the \u00df \ufb01",
        "\U0001f600dog the\u0301",
        *("t" * length for length in (99, 100, 101)),
    ]
    check(encoder, TEXTS + lines + odd)
