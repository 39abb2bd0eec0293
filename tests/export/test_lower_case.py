"""Lower case in a graph."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.export.graph import Graph
from t2t_torch.export.strings import characters, characters_of, joined, lower


@functools.cache
def session():
    graph = Graph()
    texts = graph.input("texts", "string", ["b"])
    lowered = joined(lower(characters_of(texts)))
    graph.output("lowered", lowered, "string", ["b"])
    return onnxruntime.InferenceSession(
        graph.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )


def lowered(texts):
    return session().run(None, {"texts": np.array(texts, object)})[0].tolist()


def test_characters_are_as_python_has_them():
    text = "".join(characters()[:0x12000] + characters()[0x12000::61])
    assert lowered([text]) == [text.lower()]


# Letters, marks that are ignored before and after a sigma, and what ends a word.
SIGMAS = "ΣσςaAİ'.\u0301\u0345\u00ad\u02b0 ǅ😀"


@settings(max_examples=50)
@given(st.lists(st.text(SIGMAS, max_size=9), min_size=1, max_size=4))
@example(["ΟΔΟΣ", "ΟΔΟΣ.", "Σ", "AΣ'", "AΣ'B", "'ΣA", ""])
def test_a_sigma_that_ends_a_word_is_another(texts):
    assert lowered(texts) == [text.lower() for text in texts]


@pytest.mark.parametrize("texts", [[""], ["", "A"], ["\x00A", "A\x00"], ["İ" * 5000]])
def test_texts_of_any_length_are_kept_whole(texts):
    assert lowered(texts) == [text.lower() for text in texts]
