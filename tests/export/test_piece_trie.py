"""Lines cut into the longest pieces in a graph, as `subtoken_learner.cut` cuts one token."""

from __future__ import annotations

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.export.graph import Graph
from t2t_torch.export.segmentation import PieceTrie
from t2t_torch.text.tensor2tensor_subword import cut, longest_by_start

LETTERS = "abc_"  # a piece has the last at its end alone


def cut_by_graph(pieces, tokens):
    """What pieces a graph cuts tokens into, of all one after another."""
    numbered = {tuple(map(LETTERS.index, piece)): i for i, piece in enumerate(pieces)}
    graph = Graph()
    symbols = graph.input("symbols", "int64", ["n"])
    starts = graph.input("starts", "bool", ["n"])
    found = PieceTrie(numbered, len(LETTERS)).cut(symbols, starts)
    graph.output("begins", found.begins, "bool", ["n"])
    graph.output("ids", found.ids, "int64", ["n"])
    session = onnxruntime.InferenceSession(
        graph.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    line = "".join(tokens)
    starts_at = [place == 0 for token in tokens for place in range(len(token))]
    feeds = {"symbols": np.array([LETTERS.index(c) for c in line], np.int64)}
    begins, ids = session.run(None, {**feeds, "starts": np.array(starts_at, bool)})
    return [pieces[i] if i >= 0 else None for i in ids[begins]]


TOKENS = st.text("abc", max_size=12).map(lambda text: f"{text}_")
PIECES = st.sets(st.one_of(st.text("abc", min_size=1, max_size=5), TOKENS), max_size=20)


@settings(max_examples=30)
@given(PIECES, st.lists(TOKENS, max_size=6))
def test_a_line_is_cut_as_each_token_alone(pieces, tokens):
    known = sorted(pieces | set(LETTERS))
    longest = longest_by_start(known)
    expected = [piece for token in tokens for piece in cut(token, set(known), longest)]
    assert cut_by_graph(known, tokens) == expected


def test_where_no_piece_begins_there_is_none():
    assert cut_by_graph(["ab", "a", "_"], ["abab_", "ac_", "a_"]) == [
        "ab", "ab", "_", "a", None, "a", "_",
    ]  # fmt: skip
