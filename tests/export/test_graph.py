"""The builder of graphs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import EXTENSIONS, OPSETS, Graph, where


def run(graph, **given):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is to fail says so itself
    model = graph.model().SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


def test_what_is_put_in_comes_out_computed():
    graph = Graph("sum")
    total = graph.add("Add", graph.input("a", "int64", ["n"]), graph.constant([1, 2]))
    graph.output("total", total, "int64", ["n"])
    np.testing.assert_array_equal(run(graph, a=np.array([10, 20]))["total"], [11, 22])
    assert not graph.needs_extensions


def test_constants_are_what_they_were_and_the_same_content_is_one_value():
    graph = Graph()
    assert graph.constant([1, 2]).name == graph.constant(np.array([1, 2])).name
    assert graph.constant([1, 2]).name != graph.constant([1.0, 2.0]).name
    strings = ["é\u0301", "", "\x00", "a\x00"]
    values = {
        "strings": (graph.constant(strings), "string", [4]),
        "bool": (graph.constant([True]), "bool", [1]),
        "float": (graph.constant(1.5), "float32", []),
        "double": (graph.constant(np.array(0.1)), "float64", []),
    }
    for name, value in values.items():
        graph.output(name, *value)
    found = run(graph)
    assert found["strings"].tolist() == strings
    assert found["bool"].tolist() == [True]
    assert (found["float"].dtype, found["float"].shape) == (np.float32, ())
    assert found["double"] == np.array(0.1)


def test_values_have_the_operators_of_python_and_of_onnx():
    graph = Graph()
    value = graph.input("value", "int64", ["n"])
    results = {
        "sum": 1 + value - value / 2 * (3 - value) % 7,
        "powers": 2 * -(value**2),
        "mask": ((value < 3) | (value >= 9)) & ~(value == 1) & (value <= 9) & (value > 0),
        "names": where(value != 2, "a", "b").StringConcat("!"),
        "part": value[1:][[1, 0]],
        "rest": value[:-1],
        "total": value.sum(),
        "all": (value > 0).all(),
        "size": value.size(0),
    }
    numbers = np.array([1, 2, 9])
    for name, result in results.items():
        dtype = {"names": "string", "mask": "bool", "all": "bool"}.get(name, "int64")
        graph.output(name, result, dtype, [] if name in ("total", "all") else [None])
    found = {name: made.tolist() for name, made in run(graph, value=numbers).items()}
    assert found == {
        "sum": [2, 2, 6],
        "powers": [-2, -8, -162],
        "mask": [False, True, True],
        "names": ["a!", "b!", "a!"],
        "part": [9, 2],
        "rest": [1, 2],
        "total": 12,
        "all": True,
        "size": [3],
    }


def test_a_value_is_neither_true_nor_false():
    value = Graph().input("value", "int64", ["n"])
    with pytest.raises(TypeError, match="no truth value"):
        assert value == 1
    with pytest.raises(TypeError, match="not iterable"):
        list(value)
    with pytest.raises(TypeError, match="//"):
        value // 2  # Python rounds down, ONNX to zero


def test_an_operator_is_added_to_the_innermost_graph():
    graph = Graph()
    value, body = graph.input("value", "int64", []), graph.body("body")
    inner = body.input("inner", "int64", [])
    assert (value + inner).graph is body and (value + 1).graph is graph


def test_a_body_reads_what_is_around_it():
    graph = Graph()
    value = graph.input("value", "int64", ["n"])
    body = graph.body("loop")
    body.input("number", "int64", [])
    body.input("more", "bool", [])
    state = body.input("state", "int64", [None])
    body.output("more", body.constant(True), "bool", [])
    body.output("state", body.add("Add", state, value), "int64", [None])
    state = graph.add("Loop", graph.constant(3), "", value, body=body)
    graph.output("sum", state, "int64", ["n"])
    assert run(graph, value=np.array([1, 5]))["sum"].tolist() == [4, 20]


def checked():
    graph = Graph()
    texts = graph.input("texts", "string", ["n", "m"])
    few = graph.add("Less", graph.add("Size", texts), graph.constant(5))
    graph.output("same", graph.require(few, "texts: too many", texts), "string", ["n", "m"])
    return graph


def test_what_is_required_holds_or_the_graph_fails_and_tells():
    texts = np.array([["a", "b"], ["c", ""]], object)
    assert run(checked(), texts=texts)["same"].tolist() == texts.tolist()
    with pytest.raises(Exception, match="texts: too many"):
        run(checked(), texts=np.array([["a", "b", "c"]] * 2, object))


def doubling():
    """A model with a body, a weight and a function of its own."""
    graph = Graph("doubling")
    value = graph.input("value", "int64", ["n"])
    branches = {}
    for name, factor in (("then_branch", 2), ("else_branch", 1)):
        branches[name] = graph.body(name)
        product = branches[name].add("Mul", value, branches[name].constant(factor))
        branches[name].output("product", product, "int64", ["n"])
    graph.output("value_out", graph.add("If", graph.constant(True), **branches), "int64", ["n"])
    model = graph.model()
    one = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    opset = onnx.helper.make_opsetid("", OPSETS[""])
    twice = onnx.helper.make_function("own", "Twice", ["x"], ["y"], [one], [opset])
    model.functions.append(twice)
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.graph.node[-1].input[0] = "twice"
    model.graph.node.insert(
        len(model.graph.node) - 1,
        onnx.helper.make_node("Twice", [model.graph.node[0].output[0]], ["twice"], domain="own"),
    )
    return model


def test_models_are_laid_into_one_another_and_their_names_do_not_meet():
    graph = Graph()
    value = graph.input("value", "int64", ["n"])
    for _ in range(2):
        value = graph.inline(doubling(), {"value": value})["value_out"]
    graph.output("value_out", value, "int64", ["n"])
    assert run(graph, value=np.array([1, 2]))["value_out"].tolist() == [16, 32]


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(ExportError, match="given no value"):
        Graph().inline(doubling(), {})
    model = doubling()
    model.opset_import[0].version = 17
    with pytest.raises(ExportError, match="version 17"):
        Graph().inline(model, {"value": "value"})


def test_operators_of_the_extensions_are_noticed_also_in_bodies():
    graph = Graph()
    body = graph.body("body")
    body.add("StringLower", "text", domain=EXTENSIONS)
    graph.add("If", graph.constant(True), then_branch=body, else_branch=body)
    assert graph.needs_extensions


def test_constants_that_nothing_reads_are_left_out():
    graph = Graph()
    graph.constant([1, 2, 3])
    graph.output("one", graph.constant(1), "int64", [])
    assert len(graph.model().graph.initializer) == 1
