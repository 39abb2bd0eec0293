"""An artifact of a trial is asked with tensors, and with its nested inputs as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from served import Served, _written, artifact_source

from t2t_torch.errors import ArtifactError
from t2t_torch.features import InputSpec, OutputSpec

FIELDS = (
    InputSpec("left", "tensor", "float32", shape=(2,)),
    InputSpec("rest.0.ids", "tensor", "int64", shape=(-1,)),
    InputSpec("rest.1", "tensor", "bool"),
)
TARGETS = (
    OutputSpec("sum", "tensor", dtype="float32"),
    OutputSpec("more.ids", "tensor", dtype="int64", shape=(-1,)),
)
NESTING = {
    "inputs": {
        "dict": {
            "left": {"leaf": "left"},
            "rest": {
                "tuple": [{"dict": {"ids": {"leaf": "rest.0.ids"}}}, {"leaf": "rest.1"}, None]
            },
        }
    },
    "outputs": {
        "dict": {
            "sum": {"leaf": "sum"},
            "more": {"namedtuple": "More", "fields": {"ids": {"leaf": "more.ids"}}},
        }
    },
}
RECORD = {"left": [1, 2.5], "rest": [{"ids": [3, 4, 5]}, True, None]}
ANSWER = {"sum": 3.5, "more": {"ids": [6, 8, 10]}}


def write_nested(folder: Path, answer: Any = ANSWER, **changes: Any) -> Path:
    """Writes an artifact that sums numbers, and doubles ids; a flag is not read."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["left", "axis"], ["sum"], keepdims=0),
            helper.make_node("Add", ["rest.0.ids", "rest.0.ids"], ["more.ids"]),
        ],
        "nested",
        [
            info("left", TensorProto.FLOAT, ["B", 2]),
            info("rest.0.ids", TensorProto.INT64, ["B", "S"]),
            info("rest.1", TensorProto.BOOL, ["B"]),
        ],
        [info("sum", TensorProto.FLOAT, ["B"]), info("more.ids", TensorProto.INT64, ["B", "S"])],
        [helper.make_tensor("axis", TensorProto.INT64, [1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    examples = [{"input": RECORD, "answer": answer}]
    changes = {"nesting": NESTING, **changes}
    return _written(folder, model.SerializeToString(), examples, FIELDS, TARGETS, **changes)


@pytest.fixture
def server(tmp_path: Path, serve: Callable[..., Served]) -> Served:
    return serve(artifact_source(write_nested(tmp_path / "nested"), "nested"))


def test_predict_takes_and_tells_nested_json(server: Served) -> None:
    other = {"left": [0, 0], "rest": [{"ids": [7]}, False, None]}
    for inputs in ([RECORD, other], [{"input": RECORD}, {"input": other}]):
        told = server.post("/predict", {"inputs": inputs}).json()["outputs"]
        assert [one["output"]["value"] for one in told] == [
            ANSWER,
            {"sum": 0.0, "more": {"ids": [14]}},
        ]


def test_infer_takes_and_tells_tensors(server: Served) -> None:
    inputs = [
        {"name": "left", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4.5]},
        {"name": "rest.0.ids", "datatype": "INT64", "shape": [2, 1], "data": [[5], [6]]},
        {"name": "rest.1", "datatype": "BOOL", "shape": [2], "data": [True, False]},
    ]
    answer = server.post("/v2/models/nested/infer", {"inputs": inputs}).json()
    assert answer["outputs"] == [
        {"name": "sum", "shape": [2], "datatype": "FP32", "data": [3.0, 7.5]},
        {"name": "more.ids", "shape": [2, 1], "datatype": "INT64", "data": [10, 12]},
    ]
    asked = {"inputs": inputs, "outputs": [{"name": "sum"}]}
    (only,) = server.post("/v2/models/nested/infer", asked).json()["outputs"]
    assert only["name"] == "sum"
    asked["outputs"] = [{"name": "less"}]
    assert "no output 'less'" in server.post("/v2/models/nested/infer", asked).json()["error"]


def test_metadata_tell_the_tensors_and_the_page_the_whole(server: Served) -> None:
    told = server.get("/v2/models/nested").json()
    assert told["inputs"] == [
        {"name": "left", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "rest.0.ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "rest.1", "datatype": "BOOL", "shape": [-1]},
    ]
    assert told["outputs"][1] == {"name": "more.ids", "datatype": "INT64", "shape": [-1, -1]}
    (model,) = server.get("/models").json()["models"]
    assert model["fields"] == [{"name": "input", "title": "input", "kind": "value", "size": 0}]
    assert model["targets"] == [{"name": "output", "title": "output", "kind": "value"}]
    assert model["examples"] == [{"input": RECORD}]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (3, "the input is int, where a mapping of left, rest was expected"),
        ({"left": [1, 2]}, "the input has left, where left, rest were expected"),
        ({**RECORD, "left": [1]}, r"left has the shape [1], where [2] was expected"),
        ({**RECORD, "rest": [{"ids": [1]}, 1, None]}, "rest.1 is of int64, where bool"),
        ({**RECORD, "rest": [{"ids": [1]}, True]}, "rest has 2 parts, where 3 were expected"),
        ({**RECORD, "rest": [{"ids": [0.5]}, True, None]}, "is of float64, where int64"),
        ({**RECORD, "rest": [{"ids": [2**70]}, True, None]}, "of object, where int64"),
        ({**RECORD, "rest": [{"ids": [1]}, True, "a"]}, "where nothing (null) was expected"),
    ],
)
def test_an_input_that_is_nested_otherwise_is_refused(
    server: Served, record: Any, expected: str
) -> None:
    answer = server.post("/predict", {"inputs": [RECORD, record]})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("input 1 ")
    assert expected in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shape": [1, 3], "data": [1, 2, 3]}, "has the shape [1, 3], where [-1, 2]"),
        ({"shape": [1, 2], "data": [1, 2, 3]}, "has the shape [1, 2] and 3 elements"),
        ({"datatype": "BYTES", "data": ["a", "b"]}, "the datatype 'BYTES'; expected FP32"),
        ({"data": ["a", "b"]}, "where float32 was expected"),
        ({"shape": [0, 2], "data": []}, "different first dimensions"),
        ({"shape": [1, 2**31 - 1, 0], "data": []}, "smaller axes where there are no elements"),
        ({"name": "other"}, "this model takes left, rest.0.ids, rest.1"),
    ],
)
def test_a_tensor_of_another_kind_is_refused(
    server: Served, change: dict[str, Any], expected: str
) -> None:
    left = {"name": "left", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **change}
    inputs = [
        left,
        {"name": "rest.0.ids", "datatype": "INT64", "shape": [1, 1], "data": [5]},
        {"name": "rest.1", "datatype": "BOOL", "shape": [1], "data": [True]},
    ]
    answer = server.post("/v2/models/nested/infer", {"inputs": inputs})
    assert answer.status_code == 400
    assert expected in answer.json()["error"]


def test_one_that_answers_its_examples_otherwise_is_not_served(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    wrong = {**ANSWER, "sum": 4.0}
    with pytest.raises(ArtifactError, match=r"its example 0 .*'sum': 3\.5"):
        serve(artifact_source(write_nested(tmp_path / "nested", wrong)))


def test_an_input_of_the_name_input_may_be_wrapped_and_need_not(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    nesting = {"inputs": {"dict": {"input": NESTING["inputs"]}}, "outputs": NESTING["outputs"]}
    folder = write_nested(tmp_path / "nested", nesting=nesting)
    (folder / "examples.jsonl").write_text("")
    told = json.loads((folder / "signature.json").read_text())
    del told["files"]["examples.jsonl"], told["sha256"]
    told["format_version"] = 2  # written before there were checksums
    (folder / "signature.json").write_text(json.dumps(told))
    server = serve(artifact_source(folder, "nested"))
    record = {"input": RECORD}
    for inputs in ([record], [{"input": record}]):
        told = server.post("/predict", {"inputs": inputs}).json()["outputs"]
        assert told[0]["output"]["value"]["sum"] == np.float32(3.5)
