"""Ids as texts in a graph: what `decode` makes of them in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.decoded import check_decodable, decoded
from t2t_torch.export.graph import Graph
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.token import TokenEncoder

ENCODERS: list[TextEncoder] = [
    CharacterEncoder(["a", "é", "😀", " ", "\n"]),
    TokenEncoder(["go", "to", "Rom", "<unk>"], replace_oov="<unk>"),
]

IDS = [
    [3, 4, 5, 1, 3],
    [1, 3, 3, 3, 3],
    [0, 0, 0, 0, 0],
    [3, 0, 4, 0, 0],
    [2, 99, 5, 5, 5],
    [0, 2, 1, 0, 2],
]


def session_of(encoder: TextEncoder) -> Any:
    graph = Graph("text")
    ids = graph.input("ids", "int64", ["rows", "length"])
    graph.output("texts", decoded(graph, encoder, ids), "string", ["rows"])
    return onnxruntime.InferenceSession(graph.model().SerializeToString())


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
def test_ids_become_the_text_that_python_makes_of_them(encoder: TextEncoder) -> None:
    known = [[i if i < encoder.vocab_size else 2 for i in row] for row in IDS]
    (found,) = session_of(encoder).run(None, {"ids": np.array(known)})
    assert found.tolist() == [encoder.decode(row) for row in known]
    assert any(found)


@pytest.mark.parametrize(
    "encoder", [ByteEncoder(), TokenEncoder(["a", "b"], reverse=True)], ids=["bytes", "reverse"]
)
def test_what_a_graph_cannot_write_is_refused_by_name(encoder: TextEncoder) -> None:
    with pytest.raises(ExportError, match=f"'targets' is a text of a {type(encoder).__name__}"):
        check_decodable("targets", encoder)


def test_what_a_graph_can_write_is_not() -> None:
    for encoder in ENCODERS:
        check_decodable("targets", encoder)
