"""Classes of characters, and regular expressions of Python's as RE2 writes them."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import Graph
from t2t_torch.export.strings import characters, ranges, re2, tokens

TEXT = "a_1 é²٣\u00a0\x1c[b]-c^d'don't \\x {3} 漢字\n\t<br  />."


def found_by_graph(expression, text):
    graph = Graph()
    cut = tokens(graph.input("text", "string", ["b"]), tokenexp=re2(expression))
    graph.output("tokens", cut, "string", ["b", "w"])
    session = onnxruntime.InferenceSession(
        graph.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [one for one in session.run(None, {"text": np.array([text], object)})[0][0] if one]


@pytest.mark.sample(3)
@pytest.mark.parametrize("expression", [r"\w", r"\W", r"[^\W\d]", r"[\s]", r"\S", r"\d", r"[^\D]"])
def test_a_class_holds_the_same_characters(expression):
    text = "".join(characters()[:0x12000] + characters()[0x12000::61])
    assert "".join(found_by_graph(f"{expression}+", text)) == "".join(re.findall(expression, text))


@pytest.mark.parametrize(
    "expression",
    [
        r"\w+(?:'\w+)*|[^\w\s]",
        r"<br\s*/?>",
        r"[]a]+|[^]\w]",
        r"[\]\[\-^d]+",
        r"[\[x]+",
        r"\{\d\}|\\x|\.",
        r"[ \t\n]{1,2}",
        r"(?:é|a)+.",
    ],
)
def test_an_expression_finds_the_same(expression):
    assert found_by_graph(expression, TEXT) == re.findall(expression, TEXT) != []


@pytest.mark.parametrize(
    "expression",
    [r"a(?=b)", "(a)", "^a", "a$", "a+?", "a{2}?", "a*+", r"\bword", r"(a)\1", "[[:alpha:]]"],
)
def test_what_re2_does_not_know_is_refused(expression):
    with pytest.raises(ExportError, match="cannot stand in a graph"):
        re2(expression)


def test_ranges_leave_surrogates_out():
    assert ranges(lambda character: "\ud7fe" <= character <= "\ue001") == (
        r"\x{D7FE}-\x{D7FF}\x{E000}-\x{E001}"
    )
