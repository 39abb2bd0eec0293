"""Ids as texts in a graph: what `decode` makes of them in Python."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids
from t2t_torch.export.encoders import check_decodable, decoded_hypotheses
from t2t_torch.export.graph import Graph
from t2t_torch.text.encoder import (
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    TextEncoder,
    TokenEncoder,
)
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder
from t2t_torch.text.tree import TransitionEncoder

PIECES = "<pad>_ <EOS>_ the_ the th e_ _ \\ u ; \\u \\\\ é 漢_ , ,_ 1114111;_ 55296; _a_ a".split()
SUBTOKENS = SubtokenEncoder([*PIECES, " ", ", _", "", *"0123456789"])
ENCODERS: dict[str, TextEncoder] = {
    "characters": CharacterEncoder(["a", "é", "😀", " ", "\n", "\x00"]),
    "words": TokenEncoder(["go", "to", "Rom", "<unk>"], replace_oov="<unk>"),
    "bytes": ByteEncoder(),
    "subtokens": SUBTOKENS,
    "integers": IntegerEncoder(40),
}

IDS = [
    [3, 4, 5, 1, 3],
    [1, 3, 3, 3, 3],
    [0, 0, 0, 0, 0],
    [3, 0, 4, 0, 0],
    [2, 99, 5, 5, 5],
    [0, 2, 1, 0, 2],
]


@functools.cache
def session_of(name: str) -> Any:
    graph = Graph("text")
    ids = graph.input("ids", "int64", ["rows", "length"])
    graph.output("texts", decode_ids(ENCODERS[name], graph, ids), "string", ["rows"])
    assert not graph.needs_extensions
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        graph.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check(name: str, rows: list[list[int]]) -> list[str]:
    """Compares both on one batch, and returns the texts."""
    width = max(1, *map(len, rows))
    padded = np.array([row + [0] * (width - len(row)) for row in rows], np.int64)
    found: list[str] = session_of(name).run(None, {"ids": padded})[0].tolist()
    assert found == [ENCODERS[name].decode(row) for row in rows]
    return found


@pytest.mark.parametrize("name", ENCODERS)
def test_ids_become_the_text_that_python_makes_of_them(name: str) -> None:
    size = ENCODERS[name].vocab_size
    assert any(check(name, [[i if i < size else 2 for i in row] for row in IDS]))


def spelled(*pieces: str) -> list[int]:
    return [SUBTOKENS.subtokens.index(piece) for piece in pieces]


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.integers(-2, SUBTOKENS.vocab_size + 2),
                st.sampled_from(spelled(*"\\\\\\\\u;019__", "the_", "é")),
            ),
            max_size=24,
        ),
        min_size=1,
        max_size=5,
    )
)
@example([[]])
@example([spelled(*"\\\\\\u\\\\u"), spelled(*"\\"), spelled("u", ";", "_")])
@example([spelled(*"\\6", "_"), spelled("\\", *"00000000000065;"), spelled("the_", "the_")])
@example([spelled("\\", *"65"), spelled(*"67;_")])
@example([spelled("\\", *"1234567890123456789012345678901234567890;")])
@example([spelled("\\", "1114111;_", "\\", "1", "1114111;_", "\\", "55296;", "\\", *"0;")])
def test_any_subtokens_become_the_text_that_python_makes_of_them(rows: list[list[int]]) -> None:
    check("subtokens", rows)


def test_subtokens_of_every_kind_are_written() -> None:
    rows = [
        spelled("the_", "the_", ", _", "the_", ",", ",_"),
        spelled("\\", *"128512;", "_", "\\u", "_", "\\\\", "_"),
    ]
    assert check("subtokens", rows) == ["the the, the,,", "😀_\\"]


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(-1, 260), max_size=12), min_size=1, max_size=4))
@example([[0xC3 + 2, 0, 0xA9 + 2, 300, 1, 67]])
@example([[2, 67], [0xE2 + 2], [0xAC + 2, 0x80 + 2]])
def test_any_bytes_become_the_text_that_python_makes_of_them(rows: list[list[int]]) -> None:
    check("bytes", rows)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_search_that_found_nothing_wrote_empty_texts(name: str) -> None:
    graph = Graph("texts")
    ids = graph.input("ids", "int64", ["rows", "hypotheses", "length"])
    found = decoded_hypotheses(ENCODERS[name], ids)
    graph.output("texts", found, "string", ["rows", "hypotheses"])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    (texts,) = session.run(None, {"ids": np.zeros((2, 3, 0), np.int64)})
    assert texts.tolist() == [[""] * 3] * 2
    rows = [[[3, 4, 1], [4, 3, 3]], [[0, 0, 0], [3, 0, 3]]]
    (texts,) = session.run(None, {"ids": np.array(rows)})
    assert texts.tolist() == [[ENCODERS[name].decode(ids) for ids in row] for row in rows]


@pytest.mark.parametrize(
    "encoder",
    [TransitionEncoder(["x"]), TokenEncoder(["a", "b"], reverse=True)],
    ids=["transitions", "reverse"],
)
def test_what_a_graph_cannot_write_is_refused_by_name(encoder: TextEncoder) -> None:
    with pytest.raises(ExportError, match=f"'targets' is a text of a {type(encoder).__name__}"):
        check_decodable("targets", encoder)


def test_what_a_graph_can_write_is_not() -> None:
    for encoder in ENCODERS.values():
        check_decodable("targets", encoder)
