"""Ids know their words in a graph as they do in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from t2t_torch.decode.word_alignment import _words
from t2t_torch.export.graph import Graph
from t2t_torch.export.word_numbers import word_numbers
from t2t_torch.features import Text
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.token import TokenEncoder

TEXTS = ["one two  three", "", "   ", " one\u2003two\u00a0", "\u3000😀 two", "a\u0085b\tc", "one"]


def _encoder(kind: str, folder: Path) -> TextEncoder:
    if kind == "words":
        return TokenEncoder(["one", "two", "three", "<unk>"], replace_oov="<unk>")
    if kind == "characters":
        return CharacterEncoder("abcone tw")
    if kind == "bytes":
        return ByteEncoder()
    return SubwordEncoder.train(["one two three four"] * 9, 300, folder / "subwords")


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "subwords"])
def test_each_id_is_a_part_of_the_word_that_it_is_in_python(kind: str, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    if kind == "subwords":
        extensions = pytest.importorskip("onnxruntime_extensions")
        options.register_custom_ops_library(extensions.get_library_path())
    encoder, graph = _encoder(kind, tmp_path), Graph()
    ids = graph.input("ids", "int64", ["rows", "length"])
    kept = graph.add("Greater", ids, graph.constant(1))
    graph.output("found", word_numbers(graph, encoder, ids, kept), "int64", ["rows", "length"])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
    rows = [encoder.encode(text) for text in TEXTS]
    odd = np.random.default_rng(1).integers(3, encoder.vocab_size, (9, 12))  # halves of characters
    rows += odd.tolist()
    padded = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, its in zip(padded, rows, strict=True):
        row[: len(its)] = its
    (found,) = session.run(None, {"ids": padded})
    for row, its in zip(found.tolist(), rows, strict=True):
        assert row == [*_words(Text(encoder), its), *[-1] * (len(row) - len(its))]
