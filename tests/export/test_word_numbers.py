"""Ids know their words in a graph as they do in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from t2t_torch.decode.word_alignment import _words
from t2t_torch.export.attention import word_numbers
from t2t_torch.export.graph import Graph
from t2t_torch.features import Text
from t2t_torch.text.encoder import (
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    TextEncoder,
    TokenEncoder,
)
from t2t_torch.text.subword import SubwordEncoder

SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
TEXTS = ["one two  three", "", "   ", " one\u2003two\u00a0", "\u3000😀 two", "a\u0085b\tc", "one"]


def _encoder(kind: str, folder: Path) -> TextEncoder:
    if kind == "words":
        names = ["one", "two", "three", "<unk>", "two words", "", "\u3000", "\xa0x"]
        return TokenEncoder(names, replace_oov="<unk>")
    if kind == "integers":
        return IntegerEncoder(40)
    if kind == "characters":
        return CharacterEncoder(f"abconetw{SPACES}")
    if kind == "letters":
        return CharacterEncoder("ab")
    if kind == "bytes":
        return ByteEncoder()
    return SubwordEncoder.train(["one two three four"] * 9, 300, folder / "subwords")


def _rows_of(encoder: TextEncoder) -> list[list[int]]:
    """Ids of texts, and odd ones: halves of characters, with nothing between them."""
    texts = [*TEXTS, *(f"a{space}{space}b {space}c" for space in SPACES), SPACES]
    if isinstance(encoder, IntegerEncoder):
        texts = ["1 2  30", "", "7"]
    rows = [encoder.encode(text) for text in texts]
    draw = np.random.default_rng(1)
    rows += draw.integers(3, encoder.vocab_size, (40, 12)).tolist()
    if isinstance(encoder, ByteEncoder):
        octets = {octet + 2 for octet in SPACES.encode()}
        rows += draw.choice([*octets, 99, 99, 0xE3 + 2, 0xF0 + 2, 300], (400, 14)).tolist()
    holes = draw.random((len(rows), 200)) < 0.2
    for row, nothing in zip(list(rows), holes, strict=True):
        ids = [0 if none else one for one, none in zip(row, nothing, strict=False)]
        rows.append([*ids[:-1], *row[-1:]])
    return rows


@pytest.mark.parametrize(
    "kind", ["words", "integers", "characters", "letters", "bytes", "subwords"]
)
def test_each_id_is_a_part_of_the_word_that_it_is_in_python(kind: str, tmp_path: Path) -> None:
    encoder = _encoder(kind, tmp_path)
    session, rows = _session(encoder), _rows_of(encoder)
    padded = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, its in zip(padded, rows, strict=True):
        row[: len(its)] = its
    kept = np.arange(padded.shape[1]) < np.array([[len(its)] for its in rows])
    (found,) = session.run(None, {"ids": padded, "kept": kept})
    for row, its in zip(found.tolist(), rows, strict=True):
        assert row == [*_words(Text(encoder), its), *[-1] * (len(row) - len(its))], its


def _session(encoder: TextEncoder) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if isinstance(encoder, SubwordEncoder):
        extensions = pytest.importorskip("onnxruntime_extensions")
        options.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime.InferenceSession(_graph(encoder).model().SerializeToString(), options)


def _graph(encoder: TextEncoder) -> Graph:
    graph = Graph()
    ids = graph.input("ids", "int64", ["rows", "length"])
    kept = graph.input("kept", "bool", ["rows", "length"])
    graph.output("found", word_numbers(encoder, ids, kept), "int64", ["rows", "length"])
    return graph


@pytest.mark.parametrize("kind", ["words", "integers", "characters", "bytes"])
def test_a_long_text_is_gone_through_once(kind: str, tmp_path: Path) -> None:
    encoder = _encoder(kind, tmp_path)
    assert "Loop" not in {node.op_type for node in _graph(encoder).model().graph.node}
    session = _session(encoder)
    for width in (0, 1, 20_000):
        ids = np.full((1, width), 3, np.int64)
        (found,) = session.run(None, {"ids": ids, "kept": ids > 0})
        assert found.shape == (1, width)
